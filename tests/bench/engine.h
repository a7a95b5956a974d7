// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/answer.h"
#include "tests/bench/clock.h"
#include "tests/bench/connections.h"
#include "tests/bench/target.h"
#include "tests/bench/web_server.h"

namespace cede::bench {

using SlotIndex = std::uint32_t;

// Which connection a request travels on when keep-alive is on. Without keep-alive every request has its own.
enum class Use : std::uint8_t {
    pooled,  // the one of its pool that was idle for the shortest time, else a new one, else it waits for
             // one; back into the pool afterwards
    own,     // its slot's own, opened at the slot's first request and kept for it
    fresh,   // a new one, closed behind the answer
};

struct Finished {
    SlotIndex slot;
    Failure failure;        // none: served
    Nanoseconds scheduled;  // as given to start()
    Nanoseconds at;
    bool reused = false;  // its connection had served a request before; not told of a request without answer
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
    std::uint64_t connects = 0;     // connections opened
    std::uint64_t reconnects = 0;   // of these, in place of a kept one that the other side had closed
    std::uint64_t closed_idle = 0;  // kept connections closed by the other side while nothing was asked on
                                    // them
    std::uint64_t retries = 0;      // requests sent again on a new connection in place of a reused one that
                                    // was lost before the script was known to run (Remedy::reconnect)
    std::uint64_t resent = 0;       // requests sent again in any other case (Remedy::another)
    std::uint64_t resent_acknowledged = 0;  // of these, after the other side had said that it runs the script
    std::uint64_t aborted = 0;              // connections closed, with a farewell, because a client gave up
    std::uint64_t conn_closes = 0;          // connections closed because the other side asked for it
    std::uint64_t waited = 0;               // requests for which their worker had no connection at once
    std::uint64_t backlog_full = 0;         // connects put off because the Unix socket's queue was full
};

struct EngineSettings {
    Target target;
    const WebServer* server = &web_server(Protocol::fastcgi);
    bool keep_alive = true;
    std::uint32_t pools = 8;
    std::uint32_t max_connections = 0;  // of a pool, its `own` and `fresh` ones not counted; 0: the server's
    std::uint32_t slots = 1;            // requests that can be under way at once
    Nanoseconds patience = 10 * second;
    std::string expected = {};  // the body of every answer
    bool check_body = false;
};

// Single-threaded epoll client that behaves like `pools` web-server workers. Throws std::system_error if the
// kernel gives no epoll descriptor.
class Engine {
  public:
    explicit Engine(EngineSettings settings);

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
    static constexpr std::uint32_t none = Connection::none;

    struct Slot {
        const std::vector<std::byte>* request = nullptr;
        BodyCheck body;
        Nanoseconds scheduled = 0;
        Nanoseconds started = 0;
        std::uint32_t pool = 0;
        std::uint32_t connection = none;
        std::uint32_t own = none;
        std::uint32_t losses = 0;
        Use use = Use::pooled;
        bool busy = false;
        bool waiting = false;  // in its pool's queue
        bool connect_failed = false;
    };
    // One worker's connections, and its requests that wait for one.
    struct Pool {
        std::vector<std::uint32_t> idle;  // the latest at the back
        std::deque<SlotIndex> waiting;
        std::uint32_t open = 0;    // pooled connections
        Nanoseconds retry_at = 0;  // when the first that waits is tried again though nothing has changed
        std::uint64_t lost = 0;
    };

    [[nodiscard]] std::optional<std::uint32_t> kept_connection(const Slot& slot);
    [[nodiscard]] std::expected<std::uint32_t, int> open_connection(SlotIndex index);
    bool place(SlotIndex index, bool on_new_one);
    void put_off(SlotIndex index);
    void serve_waiting(Pool& pool);
    void receive(std::uint32_t index, bool hung_up, Listener& listener);
    bool take(std::uint32_t index, protocol::Bytes bytes, bool hung_up, Listener& listener);
    void answered(std::uint32_t index, bool hung_up, Listener& listener);
    void peer_gone(std::uint32_t index, Failure how, Listener& listener);
    void recover(SlotIndex index, const Loss& loss, Failure how, Listener& listener);
    void close_idle(std::uint32_t index) noexcept;
    void give_up(SlotIndex index, Listener& listener);
    void finish(SlotIndex index, Failure failure, Listener& listener, bool reused = false);
    void close_connection(std::uint32_t index) noexcept;
    void check_slot(SlotIndex index, Nanoseconds at, Listener& listener);
    void sweep(Nanoseconds at, Listener& listener);

    EngineSettings settings_;
    const WebServer& server_;
    std::string_view expected_;
    std::vector<Slot> slots_;
    std::vector<Pool> pools_;
    ConnectionTable connections_;
    std::array<std::byte, 65536> buffer_{};
    Counters counters_;
    Nanoseconds next_sweep_ = 0;
    std::uint32_t under_way_ = 0;
};

}  // namespace cede::bench
