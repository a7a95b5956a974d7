// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/connections.h"

#include <cerrno>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace cede::bench {

namespace {

constexpr std::uint32_t read_events = EPOLLIN | EPOLLRDHUP | EPOLLET;

}  // namespace

ConnectionTable::ConnectionTable(std::size_t capacity, const Target& target, const WebServer& server)
    : target_(target), server_(server), epoll_(epoll_create1(EPOLL_CLOEXEC)), connections_(capacity) {
    if (epoll_ < 0) {
        throw std::system_error(errno, std::system_category(), "epoll_create1");
    }
    for (auto index = static_cast<std::uint32_t>(capacity); index > 0; --index) {
        unused_.push_back(index - 1);
    }
}

ConnectionTable::~ConnectionTable() {
    for (const Connection& connection : connections_) {
        if (connection.fd >= 0) {
            ::close(connection.fd);
        }
    }
    ::close(epoll_);
}

std::expected<std::uint32_t, int> ConnectionTable::open(Nanoseconds at) {
    if (unused_.empty()) {
        return std::unexpected{EMFILE};
    }
    const int fd = target_.connect();
    if (fd < 0) {
        return std::unexpected{errno};
    }
    const std::uint32_t index = unused_.back();
    epoll_event event{.events = read_events, .data = {.u32 = index}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int error = errno;
        ::close(fd);
        return std::unexpected{error};
    }
    unused_.pop_back();
    Connection& connection = connections_[index];
    if (!connection.answer) {
        connection.answer = server_.new_answer();
    }
    connection.answer->open();
    connection.fd = fd;
    connection.opened = at;
    connection.owner = none;
    connection.reused = false;
    connection.pooled = false;
    connection.sending = false;
    return index;
}

void ConnectionTable::close(std::uint32_t index) noexcept {
    Connection& connection = connections_[index];
    ::close(connection.fd);
    connection.fd = -1;
    connection.slot = none;
    unused_.push_back(index);
}

void ConnectionTable::send(std::uint32_t index, protocol::Bytes request) {
    Connection& connection = connections_[index];
    connection.request = request;
    connection.sent = 0;
    connection.answer->begin();
    go_on_sending(index);
}

// An error of send() is left to recv(), which reports the same one: an epoll event is certain to follow.
void ConnectionTable::go_on_sending(std::uint32_t index) noexcept {
    Connection& connection = connections_[index];
    const protocol::Bytes rest = connection.request.subspan(connection.sent);
    const ssize_t sent = ::send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0) {
        connection.sent += static_cast<std::size_t>(sent);
    }
    const bool wait =
        connection.sent < connection.request.size() && (sent >= 0 || errno == EAGAIN || errno == ENOTCONN);
    if (wait != connection.sending) {
        connection.sending = wait;
        epoll_event event{.events = read_events | (wait ? std::uint32_t{EPOLLOUT} : 0U),
                          .data = {.u32 = index}};
        epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
    }
}

std::span<const epoll_event> ConnectionTable::wait(Nanoseconds longest) noexcept {
    const timespec timeout{.tv_sec = longest / second, .tv_nsec = longest % second};
    const int count =
        epoll_pwait2(epoll_, events_.data(), static_cast<int>(events_.size()), &timeout, nullptr);
    return std::span{events_}.first(static_cast<std::size_t>(count > 0 ? count : 0));
}

}  // namespace cede::bench
