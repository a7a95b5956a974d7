// SPDX-License-Identifier: Apache-2.0
#include "children/agent/connection.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"

namespace cede::agent {
namespace {

// Apart from the object, so that it takes no room in the library's file.
constinit std::byte buffer[Connection::capacity] = {};

// Of what recv(2) returned.
Connection::Fill meaning_of(ssize_t size) noexcept {
    if (size >= 0) {
        return size > 0 ? Connection::Fill::data : Connection::Fill::end;
    }
    if (errno == EINTR) {
        return Connection::Fill::interrupted;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK ? Connection::Fill::nothing : Connection::Fill::failed;
}

}  // namespace

void Connection::open(int fd) noexcept {
    fd_ = fd;
    begin_ = admitted_ = end_ = 0;
    begun_ = 0;
    exchange_.reset();
    new_to_php = true;
    closing = false;
    shutdown_deferred = false;
    over = false;
    head_since_ns = 0;
    body_since_ns = 0;
    waited_us = 0;
    peeked_ = 0;
}

Connection::Fill Connection::fill() noexcept {
    if (!buffered()) {
        begin_ = admitted_ = end_ = 0;
    } else if (end_ == capacity) {
        std::memmove(buffer, buffer + begin_, end_ - begin_);
        end_ -= begin_;
        admitted_ -= begin_;
        begin_ = 0;
    }
    const ssize_t size = libc().recv(fd_, buffer + end_, capacity - end_, MSG_DONTWAIT);
    end_ += size > 0 ? static_cast<std::size_t>(size) : 0;
    return meaning_of(size);
}

Connection::Fill Connection::peek() noexcept {
    begin_ = admitted_ = end_ = 0;
    const ssize_t size = libc().recv(fd_, buffer, capacity, MSG_PEEK | MSG_DONTWAIT);
    peeked_ = size > 0 ? static_cast<std::size_t>(size) : 0;
    return meaning_of(size);
}

Connection::Fill Connection::take_peeked(std::size_t size) noexcept {
    const ssize_t taken = libc().recv(fd_, buffer, size, MSG_DONTWAIT);
    peeked_ = 0;
    end_ = taken > 0 ? static_cast<std::size_t>(taken) : 0;
    return meaning_of(taken);
}

protocol::Bytes Connection::peeked() const noexcept {
    return {buffer, peeked_};
}

protocol::Bytes Connection::unread() const noexcept {
    return {buffer + admitted_, end_ - admitted_};
}

void Connection::add_variable(std::size_t head_size, std::string_view name, std::string_view value) noexcept {
    const auto used = protocol::add_variable(agent.protocol, {buffer + admitted_, capacity - admitted_},
                                             end_ - admitted_, head_size, name, value);
    end_ = used ? admitted_ + *used : end_;
}

protocol::Outcome Connection::admit() noexcept {
    Exchange::Admission admission = exchange_.admit({buffer + admitted_, end_ - admitted_});
    while (admission.drop > 0 && !available()) {
        begin_ += admission.drop;
        admitted_ = begin_;
        admission = exchange_.admit({buffer + admitted_, end_ - admitted_});
    }
    admitted_ += admission.pass;
    return admission.outcome;
}

protocol::Protocol Connection::looks_like() const noexcept {
    return buffered() ? protocol::detect(buffer[begin_]) : protocol::Protocol::unknown;
}

std::ptrdiff_t Connection::receive(void* to, std::size_t size) noexcept {
    const ssize_t received = libc().recv(fd_, to, size, MSG_DONTWAIT);
    if (received > 0) {
        exchange_.received({static_cast<const std::byte*>(to), static_cast<std::size_t>(received)});
    }
    return received;
}

std::size_t Connection::take(void* to, std::size_t size) noexcept {
    new_to_php = false;
    const std::size_t taken = size < admitted_ - begin_ ? size : admitted_ - begin_;
    std::memcpy(to, buffer + begin_, taken);
    begin_ += taken;
    return taken;
}

std::uint64_t Connection::due() const noexcept {
    const std::uint64_t turns = exchange_.answers() + 1;
    return exchange_.heads() < turns ? exchange_.heads() : turns;
}

std::uint64_t Connection::begin() noexcept {
    const std::uint64_t before = begun_;
    begun_ = begins() ? due() : begun_;
    return begun_ - before;
}

bool Connection::wrote(const void* data, std::size_t size) noexcept {
    const std::uint64_t before = exchange_.answers();
    exchange_.sent({static_cast<const std::byte*>(data), size});
    return exchange_.answers() != before;
}

}  // namespace cede::agent
