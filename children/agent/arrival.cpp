// SPDX-License-Identifier: Apache-2.0
#include "children/agent/arrival.h"

#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <utility>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/clock.h"
#include "protocol/request_head.h"

namespace cede::agent {
namespace {

constexpr std::uint64_t ns_in_us = 1000;
constexpr std::uint64_t us_in_ms = 1000;
constexpr std::uint64_t us_in_s = 1'000'000;

bool has_hung_up() noexcept {
    pollfd watched{agent.connection.fd(), POLLRDHUP, 0};
    return libc().poll(&watched, 1, 0) > 0;
}

// One system call for both.
Wait ask_tcp() noexcept {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(agent.connection.fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return {};
    }
    return {info.tcpi_last_data_recv * us_in_ms, info.tcpi_state != TCP_ESTABLISHED};
}

}  // namespace

Wait look_at_arrival(bool hung_up) noexcept {
    const Arrival arrival = std::exchange(agent.arrival, {});
    Wait wait;
    switch (arrival.from) {
        case Arrival::From::nowhere:
            break;
        case Arrival::From::listener:
            if (arrival.tcp) {
                wait = ask_tcp();
            } else {
                wait.waited_us = agent.control->listen_wait_ms.load(std::memory_order_relaxed) * us_in_ms;
                wait.certain = false;  // that is who was the first in the queue, a moment ago
                wait.peer_gone = has_hung_up();
            }
            break;
        case Arrival::From::handoff: {
            const std::uint64_t now = children::monotonic_ns();
            wait.waited_us = now > arrival.since_ns ? (now - arrival.since_ns) / ns_in_us : 0;
            wait.peer_gone = has_hung_up();
            break;
        }
    }
    wait.peer_gone = wait.peer_gone || hung_up;
    return wait;
}

std::optional<std::uint64_t> parse_start(std::string_view text) noexcept {
    if (text.starts_with("t=")) {
        text.remove_prefix(2);
    }
    constexpr std::size_t most_digits = 17;
    std::uint64_t whole = 0;
    std::size_t at = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        if (at == most_digits) {
            return std::nullopt;
        }
        whole = whole * 10 + static_cast<std::uint64_t>(text[at] - '0');
    }
    if (at == 0 || (at < text.size() && text[at] != '.')) {
        return std::nullopt;
    }
    // The years from 1973 to 5138 have eleven digits less in seconds, and so on.
    constexpr std::uint64_t first_ms = 100'000'000'000;
    constexpr std::uint64_t first_us = 100'000'000'000'000;
    const std::uint64_t unit = whole < first_ms ? us_in_s : whole < first_us ? us_in_ms : 1;
    std::uint64_t fraction = 0;
    std::uint64_t weight = unit;
    for (++at; at < text.size(); ++at) {
        if (text[at] < '0' || text[at] > '9') {
            return std::nullopt;
        }
        weight /= 10;
        fraction += weight * static_cast<std::uint64_t>(text[at] - '0');
    }
    return whole * unit + fraction;
}

std::optional<std::uint64_t> wait_by_web_server(protocol::Bytes head) noexcept {
    const char* const name = agent.slot->queue_start;
    const std::size_t length = strnlen(name, sizeof agent.slot->queue_start);
    if (length == 0) {
        return std::nullopt;
    }
    std::byte value[40];
    const auto size = protocol::find_variable(agent.protocol, head, {name, length}, value);
    const auto start =
        size ? parse_start({reinterpret_cast<const char*>(value), *size}) : std::optional<std::uint64_t>{};
    if (!start) {
        return std::nullopt;
    }
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::uint64_t now_us =
        static_cast<std::uint64_t>(now.tv_sec) * us_in_s + static_cast<std::uint64_t>(now.tv_nsec) / ns_in_us;
    // Clocks of two machines differ, and a time of long ago is a mistake, not a wait.
    constexpr std::uint64_t longest_us = 3600 * us_in_s;
    const std::uint64_t waited = now_us > *start ? now_us - *start : 0;
    return waited <= longest_us ? std::optional{waited} : std::nullopt;
}

}  // namespace cede::agent
