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
#include "children/fd_passing.h"
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

void Handoff::push(children::UniqueFd connection, std::uint64_t since_ns, bool as_it_is) {
    // Nearly all have only begun to wait.
    const auto place = queue_.empty() || queue_.back().since_ns <= since_ns
                           ? queue_.end()
                           : std::ranges::upper_bound(queue_, since_ns, {}, &Ready::since_ns);
    queue_.insert(place, {std::move(connection), since_ns, as_it_is});
}

std::vector<Held> Handoff::list() const {
    std::vector<Held> all;
    for (const Ready& ready : queue_) {
        all.push_back({ready.connection.get(), ready.since_ns});
    }
    return all;
}

void Handoff::set_order(bool newest_first, std::size_t most_in_kernel) noexcept {
    newest_first_ = newest_first;
    most_in_kernel_ = most_in_kernel;
}

void Handoff::remember(bool whether) noexcept {
    remember_ = whether;
    handed_.clear();
}

void Handoff::pump() noexcept {
    while (!queue_.empty()) {
        std::size_t count = std::min(queue_.size(), children::fd_batch_size);
        if (most_in_kernel_ != std::numeric_limits<std::size_t>::max()) {
            const std::size_t there = in_kernel();
            count = std::min(count, most_in_kernel_ > there ? most_in_kernel_ - there : 0);
            if (count == 0) {
                return;
            }
        }
        std::array<children::Handoff, children::fd_batch_size> messages;
        std::array<children::OutgoingFd, children::fd_batch_size> batch;
        for (std::size_t i = 0; i < count; ++i) {
            const Ready& ready = queue_[newest_first_ ? queue_.size() - 1 - i : i];
            messages[i].readable_since_ns = ready.since_ns;
            messages[i].as_it_is = ready.as_it_is ? 1 : 0;
            batch[i] = {&messages[i], sizeof messages[i], ready.connection.get()};
        }
        const std::size_t sent = children::send_batch(ours_.get(), std::span{batch}.first(count));
        for (std::size_t i = 0; remember_ && i < sent; ++i) {
            handed_.push_back(messages[i].readable_since_ns);
        }
        const auto gone = static_cast<std::ptrdiff_t>(sent);
        newest_first_ ? queue_.erase(queue_.end() - gone, queue_.end())
                      : queue_.erase(queue_.begin(), queue_.begin() + gone);
        if (sent < count) {
            break;
        }
    }
    constexpr std::size_t many = 1024;
    if (handed_.size() > many) {
        prune();
    }
}

// Children take from the front.
void Handoff::prune() noexcept {
    const std::size_t there = in_kernel();
    if (handed_.size() > there) {
        handed_.erase(handed_.begin(), handed_.end() - static_cast<std::ptrdiff_t>(there));
    }
    // Who was there before we began to remember, or before an upgrade, waits at least since now.
    while (handed_.size() < there) {
        handed_.push_front(handed_.empty() ? children::monotonic_ns() : handed_.front());
    }
}

std::size_t Handoff::take_back(std::uint64_t before_ns) {
    if (handed_.empty() && in_kernel() == 0) {
        return 0;
    }
    prune();
    const auto last = std::find_if(handed_.rbegin(), handed_.rend(),
                                   [&](std::uint64_t since) { return since < before_ns; });
    const auto wanted = static_cast<std::size_t>(handed_.rend() - last);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < wanted; ++i) {
        children::Handoff message;
        const auto received = children::receive_message(theirs_.get(), &message, sizeof message, false);
        if (received.kind != children::Received::Kind::message) {
            break;
        }
        handed_.pop_front();
        if (received.fd >= 0) {
            push(children::UniqueFd{received.fd}, message.readable_since_ns, message.as_it_is != 0);
            ++taken;
        }
    }
    return taken;
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
            into.push_back({std::move(message.fd), report.says, report.fresh != 0});
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
    return queue_.size() + in_kernel();
}

std::size_t Handoff::in_kernel() const noexcept {
    int bytes = 0;
    // unix(7), SIOCINQ on SOCK_SEQPACKET: the bytes of all messages in the queue.
    if (ioctl(theirs_.get(), FIONREAD, &bytes) != 0) {
        bytes = 0;
    }
    return static_cast<std::size_t>(bytes) / sizeof(children::Handoff);
}

}  // namespace cede::pm
