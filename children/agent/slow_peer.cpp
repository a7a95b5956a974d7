// SPDX-License-Identifier: Apache-2.0
#include "children/agent/slow_peer.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/overtime.h"
#include "children/agent/time_limit.h"
#include "children/agent/voice.h"

namespace cede::agent {

using children::Waiting;
using protocol::Outcome;

namespace {

// How often it is asked anew whether somebody waits for this child.
constexpr int slice_ms = 1000;
// Of one call's parts at a time.
constexpr int most_parts = 16;

bool somebody_waits() noexcept {
    return waiting() == Waiting::pressure;
}

// While others wait a body that stands still has a quarter of the time.
std::uint64_t body_limit_ms() noexcept {
    const std::uint64_t limit = agent.control->body_timeout_ms.load(std::memory_order_relaxed);
    return somebody_waits() ? (limit + 3) / 4 : limit;
}

// On average, from when the limit for a standstill has passed once.
bool trickles() noexcept {
    const std::uint64_t least = agent.control->body_rate.load(std::memory_order_relaxed);
    if (least == 0 || !somebody_waits()) {
        return false;
    }
    constexpr std::uint64_t ns_in_ms = 1'000'000;
    const std::uint64_t elapsed_ms = (children::monotonic_ns() - agent.connection.body_since_ns) / ns_in_ms;
    constexpr std::uint64_t ms_in_s = 1000;
    return elapsed_ms > body_limit_ms() && agent.connection.body_bytes * ms_in_s < least * elapsed_ms;
}

// poll(2) for the rest of a body. False: errno is EINTR.
bool wait_for_body() noexcept {
    Connection& connection = agent.connection;
    if (!connection.running()) {
        pollfd watched{connection.fd(), POLLIN, 0};
        return libc().poll(&watched, 1, -1) >= 0;
    }
    const std::uint64_t begun = children::monotonic_ns();
    connection.body_since_ns = connection.body_since_ns != 0 ? connection.body_since_ns : begun;
    for (;;) {
        const int left = TimeLimit{body_limit_ms(), begun}.left_ms();
        if (left == 0 || trickles()) {
            count(agent.slot->bodies_timed_out);
            report_slow_peer(Outcome::body_too_slow);
            end_request_now({408, "Request Timeout", {}, "The request's body came too slowly.\n"});
        }
        pollfd watched{connection.fd(), POLLIN, 0};
        const int ready = libc().poll(&watched, 1, left < 0 || left > slice_ms ? slice_ms : left);
        if (ready != 0) {
            return ready > 0;
        }
    }
}

// False, with errno: EINTR is not among them, for PHP would only come back.
bool wait_for_room() noexcept {
    const TimeLimit limit{agent.control->write_timeout_ms.load(std::memory_order_relaxed)};
    for (;;) {
        const int left = limit.left_ms();
        pollfd watched{agent.connection.fd(), POLLOUT, 0};
        const int ready = left == 0 ? 0 : libc().poll(&watched, 1, left);
        if (ready > 0) {
            return true;
        }
        if (ready == 0) {
            count(agent.slot->writes_timed_out);
            report_slow_peer(Outcome::not_read);
            libc().shutdown(agent.connection.fd(), SHUT_RDWR);
            errno = EPIPE;
            return false;
        }
        if (errno != EINTR) {
            return false;
        }
    }
}

// A script has made it so, and expects what comes of it.
bool made_nonblocking(int fd) noexcept {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (static_cast<unsigned>(flags) & unsigned{O_NONBLOCK}) != 0;
}

// What is left of these parts behind so many bytes. Returns how many parts.
std::size_t drop_sent(iovec* parts, std::size_t count, std::size_t sent) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const iovec part = parts[i];
        const std::size_t gone = sent < part.iov_len ? sent : part.iov_len;
        sent -= gone;
        if (gone < part.iov_len) {
            parts[kept++] = {static_cast<std::byte*>(part.iov_base) + gone, part.iov_len - gone};
        }
    }
    return kept;
}

// All of it; or what has been sent before an error, or -1.
ssize_t send_all(iovec* parts, std::size_t count, int flags) noexcept {
    const int fd = agent.connection.fd();
    const bool may_wait = (static_cast<unsigned>(flags) & unsigned{MSG_DONTWAIT}) == 0;
    const auto at_once = static_cast<int>(static_cast<unsigned>(flags) | unsigned{MSG_DONTWAIT});
    ssize_t total = 0;
    for (;;) {
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        const ssize_t sent = sendmsg(fd, &message, at_once);
        if (sent >= 0) {
            total += sent;
            count = drop_sent(parts, count, static_cast<std::size_t>(sent));
            if (count == 0) {
                return total;
            }
        } else if (errno != EAGAIN || !may_wait || made_nonblocking(fd) || !wait_for_room()) {
            return total > 0 ? total : -1;
        }
    }
}

}  // namespace

ssize_t receive_slowly(void* to, size_t size) noexcept {
    for (;;) {
        const ssize_t received = agent.connection.receive(to, size);
        if (received >= 0) {
            agent.connection.body_bytes += static_cast<std::uint64_t>(received);
            return received;
        }
        if (errno != EAGAIN || made_nonblocking(agent.connection.fd()) || !wait_for_body()) {
            return -1;
        }
    }
}

Filled fill_slowly() noexcept {
    for (;;) {
        const std::size_t before = agent.connection.unread().size();
        switch (agent.connection.fill()) {
            case Connection::Fill::data:
                agent.connection.body_bytes += agent.connection.unread().size() - before;
                return Filled::data;
            case Connection::Fill::end:
                return Filled::end;
            case Connection::Fill::interrupted:
            case Connection::Fill::failed:
                return Filled::failed;
            case Connection::Fill::nothing:
                if (made_nonblocking(agent.connection.fd()) || !wait_for_body()) {
                    return Filled::failed;
                }
                break;
        }
    }
}

ssize_t send_slowly(const iovec* parts, int count, int flags) noexcept {
    // A blocking socket takes all of it, and lsphp expects nothing else: it would send parts twice.
    ssize_t total = 0;
    for (int begin = 0; begin < count; begin += most_parts) {
        iovec group[most_parts];
        std::size_t size = 0;
        std::size_t wanted = 0;
        for (int i = begin; i < count && i < begin + most_parts; ++i) {
            group[size++] = parts[i];
            wanted += parts[i].iov_len;
        }
        const ssize_t sent = send_all(group, size, flags);
        if (sent < 0) {
            return total > 0 ? total : -1;
        }
        total += sent;
        if (static_cast<std::size_t>(sent) < wanted) {
            break;
        }
    }
    return total;
}

}  // namespace cede::agent
