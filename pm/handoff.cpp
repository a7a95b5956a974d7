// SPDX-License-Identifier: Apache-2.0
#include "pm/handoff.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "children/clock.h"
#include "children/fd_batch.h"
#include "children/zygote_protocol.h"

namespace cede::pm {
Handoff::Handoff(Poller& poller, std::uint32_t children, Ends ends)
    : ours_{std::move(ends.ours)}, theirs_{std::move(ends.theirs)} {
    int pair[2];
    if (!ours_) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
            throw std::system_error{errno, std::generic_category(), "socketpair"};
        }
        ours_.reset(pair[0]);
        theirs_.reset(pair[1]);
    }
    // The kernel charges a message about this much, doubles what it is asked for, and calls the socket
    // writable when a quarter of it is in use. So there is room for two messages a child, and low() at half a
    // message a child.
    constexpr int message_cost = 768;
    const auto room = static_cast<int>(std::max<std::uint32_t>(children, 4)) * message_cost;
    setsockopt(ours_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    // The other way all children may want to park at once, several times over.
    const int parks = std::max(8 * room, 256 * 1024);
    if (setsockopt(theirs_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &parks, sizeof parks) != 0) {
        setsockopt(theirs_.get(), SOL_SOCKET, SO_SNDBUF, &parks, sizeof parks);
    }
    if (!poller.add(ours_.get(), EPOLLIN | EPOLLOUT | EPOLLET, {Poller::Kind::handoff, 0, 0})) {
        throw std::system_error{errno, std::generic_category(), "epoll_ctl"};
    }
}

void Handoff::push(children::UniqueFd connection) {
    push(std::move(connection), children::monotonic_ns());
}

void Handoff::push(children::UniqueFd connection, std::uint64_t since_ns) {
    queue_.push_back({std::move(connection), since_ns});
}

std::vector<Held> Handoff::list() const {
    std::vector<Held> all;
    for (const Ready& ready : queue_) {
        all.push_back({ready.connection.get(), ready.since_ns});
    }
    return all;
}

void Handoff::pump() noexcept {
    while (!queue_.empty()) {
        std::array<children::Handoff, children::fd_batch_size> messages;
        std::array<children::OutgoingFd, children::fd_batch_size> batch;
        const std::size_t count = std::min(queue_.size(), children::fd_batch_size);
        for (std::size_t i = 0; i < count; ++i) {
            messages[i].readable_since_ns = queue_[i].since_ns;
            batch[i] = {&messages[i], sizeof messages[i], queue_[i].connection.get()};
        }
        const std::size_t sent = children::send_batch(ours_.get(), std::span{batch}.first(count));
        queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(sent));
        if (sent < count) {
            return;
        }
    }
}

std::size_t Handoff::receive_parked(std::vector<Parked>& into) {
    static_assert(sizeof(children::ChildReport) <= children::IncomingFd::longest);
    std::vector<children::IncomingFd> messages;
    std::size_t received = 0;
    do {
        messages.clear();
        received = children::receive_batch(ours_.get(), sizeof(children::ChildReport), messages);
        for (children::IncomingFd& message : messages) {
            children::ChildReport report;
            std::memcpy(&report, message.data.data(), sizeof report);
            into.push_back({std::move(message.fd), report.says == children::ChildSays::see_off});
        }
    } while (received == children::fd_batch_size);
    return into.size();
}

bool Handoff::rest_until_low(std::chrono::milliseconds longest) noexcept {
    const std::uint64_t before = children::monotonic_ns();
    pollfd writable{ours_.get(), POLLOUT, 0};
    poll(&writable, 1, static_cast<int>(longest.count()));
    constexpr std::uint64_t no_rest_ns = 20'000;
    return children::monotonic_ns() - before > no_rest_ns;
}

std::size_t Handoff::waiting() const noexcept {
    int bytes = 0;
    // unix(7), SIOCINQ on SOCK_SEQPACKET: the bytes of all messages in the queue.
    if (ioctl(theirs_.get(), FIONREAD, &bytes) != 0) {
        bytes = 0;
    }
    return queue_.size() + static_cast<std::size_t>(bytes) / sizeof(children::Handoff);
}

}  // namespace cede::pm
