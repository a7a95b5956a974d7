// SPDX-License-Identifier: Apache-2.0
#include "pm/handoff.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <time.h>
#include <utility>

#include "children/fd_passing.h"
#include "children/zygote_protocol.h"

namespace cede::pm {
namespace {

std::uint64_t now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Handoff::Handoff(Poller& poller, std::uint32_t children) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        throw std::system_error{errno, std::generic_category(), "socketpair"};
    }
    sender_.reset(ends[0]);
    receiver_.reset(ends[1]);
    // The kernel charges a message about this much, doubles what it is asked for, and reports the socket
    // writable again when a quarter of it is in use: then about one message a child is left.
    constexpr int message_cost = 768;
    const int room = static_cast<int>(std::max<std::uint32_t>(children, 4)) * 2 * message_cost;
    setsockopt(sender_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (!poller.add(sender_.get(), EPOLLOUT | EPOLLET, {Poller::Kind::handoff, 0, 0})) {
        throw std::system_error{errno, std::generic_category(), "epoll_ctl"};
    }
}

void Handoff::push(children::UniqueFd connection) {
    queue_.push_back({std::move(connection), now_ns()});
    pump();
}

void Handoff::pump() noexcept {
    while (!queue_.empty()) {
        const Ready& first = queue_.front();
        const children::Handoff message{first.since_ns};
        if (!children::send_message(sender_.get(), &message, sizeof message, first.connection.get())) {
            return;
        }
        queue_.pop_front();
    }
}

std::size_t Handoff::waiting() const noexcept {
    int bytes = 0;
    // unix(7), SIOCINQ on SOCK_SEQPACKET: the bytes of all messages in the queue.
    if (ioctl(receiver_.get(), FIONREAD, &bytes) != 0) {
        bytes = 0;
    }
    return queue_.size() + static_cast<std::size_t>(bytes) / sizeof(children::Handoff);
}

}  // namespace cede::pm
