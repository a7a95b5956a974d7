// SPDX-License-Identifier: Apache-2.0
#include "children/agent/connection.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

#include "children/agent/libc.h"

namespace cede::agent {
namespace {

// Apart from the object, so that it takes no room in the library's file.
constinit std::byte buffer[Connection::capacity] = {};

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
}

Connection::Fill Connection::fill(bool wait) noexcept {
    if (!buffered()) {
        begin_ = admitted_ = end_ = 0;
    } else if (end_ == capacity) {
        std::memmove(buffer, buffer + begin_, end_ - begin_);
        end_ -= begin_;
        admitted_ -= begin_;
        begin_ = 0;
    }
    const ssize_t size = libc().recv(fd_, buffer + end_, capacity - end_, wait ? 0 : MSG_DONTWAIT);
    if (size > 0) {
        end_ += static_cast<std::size_t>(size);
        return Fill::data;
    }
    if (size == 0) {
        return Fill::end;
    }
    if (errno == EINTR) {
        return Fill::interrupted;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK ? Fill::nothing : Fill::failed;
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
    const ssize_t received = libc().recv(fd_, to, size, 0);
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
