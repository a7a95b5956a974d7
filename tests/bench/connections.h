// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <sys/epoll.h>
#include <vector>

#include "protocol/bytes.h"
#include "tests/bench/answer.h"
#include "tests/bench/clock.h"
#include "tests/bench/target.h"
#include "tests/bench/web_server.h"

namespace cede::bench {

struct Connection {
    static constexpr std::uint32_t none = UINT32_MAX;

    std::unique_ptr<Answer> answer;  // made when its place is first used
    protocol::Bytes request;         // what is on it, or was last
    std::size_t sent = 0;
    Nanoseconds opened = 0;
    std::uint32_t slot = none;  // whose request is on it; none while idle
    std::uint32_t pool = 0;
    std::uint32_t owner = none;  // the slot that keeps it for itself
    int fd = -1;
    bool reused = false;
    bool pooled = false;
    bool sending = false;  // the request is not completely sent yet
};

// The sockets and the epoll descriptor that watches them, edge-triggered.
class ConnectionTable {
  public:
    static constexpr std::uint32_t none = Connection::none;

    // Throws std::system_error if the kernel gives no epoll descriptor.
    ConnectionTable(std::size_t capacity, const Target& target, const WebServer& server);
    ConnectionTable(const ConnectionTable&) = delete;
    ConnectionTable& operator=(const ConnectionTable&) = delete;
    ~ConnectionTable();

    // Starts a connect; its end, however it ends, makes an event. Else an errno; EMFILE if the table is full.
    [[nodiscard]] std::expected<std::uint32_t, int> open(Nanoseconds at);
    void close(std::uint32_t index) noexcept;
    // Begins to send a request, or goes on. `request` must live until it is sent or the connection closed.
    void send(std::uint32_t index, protocol::Bytes request);
    void go_on_sending(std::uint32_t index) noexcept;
    // Waits; an event's data.u32 is the index. Valid until the next call.
    [[nodiscard]] std::span<const epoll_event> wait(Nanoseconds longest) noexcept;

    [[nodiscard]] Connection& operator[](std::uint32_t index) noexcept { return connections_[index]; }
    [[nodiscard]] const Connection& operator[](std::uint32_t index) const noexcept {
        return connections_[index];
    }

  private:
    const Target& target_;
    const WebServer& server_;
    int epoll_;
    std::vector<Connection> connections_;
    std::vector<std::uint32_t> unused_;  // connections without a descriptor
    std::array<epoll_event, 256> events_{};
};

}  // namespace cede::bench
