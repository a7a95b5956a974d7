// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/answer.h"
#include "tests/bench/clock.h"
#include "tests/bench/target.h"

namespace cede::bench {

using SlotIndex = std::uint32_t;

// Which connection a request travels on when keep-alive is on. Without keep-alive every request has its own.
enum class Use : std::uint8_t {
    pooled,  // the one of its pool that was idle for the shortest time, else a new one; back into the pool
             // afterwards
    own,     // its slot's own, opened at the slot's first request and kept for it
    fresh,   // a new one, closed behind the answer
};

struct Finished {
    SlotIndex slot;
    Failure failure;        // none: served
    Nanoseconds scheduled;  // as given to start()
    Nanoseconds at;
};

// A mode hears here of each request's end, and may start the slot's next request at once.
class Listener {
  public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    virtual void finished(const Finished& what) = 0;

  protected:
    ~Listener() = default;
};

struct Counters {
    std::uint64_t connects = 0;    // connections opened
    std::uint64_t reconnects = 0;  // of these, in place of a kept one that the other side had closed
    std::uint64_t retries = 0;     // requests sent again on a new connection, as nginx does with a GET when a
                                   // reused connection is closed before the first byte of the answer
    std::uint64_t closed_idle =
        0;  // kept connections closed by the other side while nothing was asked on them
};

struct EngineSettings {
    Target target;
    bool keep_alive = true;
    std::uint32_t pools = 8;
    std::uint32_t slots = 1;  // requests that can be under way at once
    Nanoseconds patience = 10 * second;
    std::string expected = {};  // the body of every answer
    bool check_body = false;
};

// Single-threaded epoll client that behaves like `pools` web-server workers. After construction it allocates
// nothing. Throws std::system_error if the kernel gives no epoll descriptor.
class Engine {
  public:
    explicit Engine(EngineSettings settings);
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine();

    // Starts a request on an unused slot; `request` must live until its end. The end is reported by a later
    // step(), never from in here.
    void start(SlotIndex slot, std::uint32_t pool, Use use, const std::vector<std::byte>& request,
               Nanoseconds scheduled);
    // Waits for events, at most until `until`, and handles them.
    void step(Listener& listener, Nanoseconds until);

    // Closes the slot's own connection, if any.
    void close_own(SlotIndex slot) noexcept;
    [[nodiscard]] bool has_own(SlotIndex slot) const noexcept { return slots_[slot].own != none; }

    [[nodiscard]] std::uint32_t under_way() const noexcept { return under_way_; }
    [[nodiscard]] Nanoseconds oldest_age(Nanoseconds at) const noexcept;
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    void reset_counters() noexcept { counters_ = {}; }

  private:
    static constexpr std::uint32_t none = UINT32_MAX;

    struct Slot {
        const std::vector<std::byte>* request = nullptr;
        Nanoseconds scheduled = 0;
        Nanoseconds started = 0;
        std::uint32_t pool = 0;
        std::uint32_t connection = none;
        std::uint32_t own = none;
        Use use = Use::pooled;
        bool busy = false;
        bool retried = false;
        bool connect_failed = false;
    };
    struct Connection {
        Answer answer;
        std::size_t sent = 0;
        std::uint32_t slot = none;  // whose request is on it; none while idle
        std::uint32_t pool = 0;
        std::uint32_t owner = none;
        int fd = -1;
        bool reused = false;
        bool sending = false;
    };
    struct Pool {
        std::vector<std::uint32_t> idle;  // the latest at the back
        std::uint64_t lost = 0;
    };

    [[nodiscard]] std::uint32_t choose_connection(Slot& slot, SlotIndex index);
    [[nodiscard]] std::uint32_t open_connection(const Slot& slot);
    void place(SlotIndex index);
    void send_request(std::uint32_t index);
    void handle(std::uint32_t index, std::uint32_t events, Listener& listener);
    void receive(std::uint32_t index, std::uint32_t events, Listener& listener);
    void answered(std::uint32_t index, bool peer_closed, Listener& listener);
    void peer_gone(std::uint32_t index, Failure how, Listener& listener);
    void finish(SlotIndex index, Failure failure, Listener& listener);
    void forget_idle(std::uint32_t index) noexcept;
    void close_connection(std::uint32_t index) noexcept;
    void sweep(Nanoseconds at, Listener& listener);

    EngineSettings settings_;
    std::string_view expected_;
    int epoll_ = -1;
    std::vector<Slot> slots_;
    std::vector<Connection> connections_;
    std::vector<std::uint32_t> unused_;  // connections without a descriptor
    std::vector<Pool> pools_;
    std::array<std::byte, 65536> buffer_{};
    Counters counters_;
    Nanoseconds next_sweep_ = 0;
    std::uint32_t under_way_ = 0;
};

}  // namespace cede::bench
