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
    begin_ = end_ = 0;
    in_ = {};
    out_ = {};
    new_to_php = true;
    closing = false;
    shutdown_deferred = false;
}

Connection::Fill Connection::fill(bool wait) noexcept {
    begin_ = end_ = 0;
    const ssize_t size = libc().recv(fd_, buffer, sizeof buffer, wait ? 0 : MSG_DONTWAIT);
    if (size > 0) {
        end_ = static_cast<std::size_t>(size);
        in_.feed({buffer, end_});
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

std::ptrdiff_t Connection::receive(void* to, std::size_t size) noexcept {
    const ssize_t received = libc().recv(fd_, to, size, 0);
    if (received > 0) {
        in_.feed({static_cast<const std::byte*>(to), static_cast<std::size_t>(received)});
    }
    return received;
}

std::size_t Connection::take(void* to, std::size_t size) noexcept {
    new_to_php = false;
    const std::size_t taken = size < end_ - begin_ ? size : end_ - begin_;
    std::memcpy(to, buffer + begin_, taken);
    begin_ += taken;
    return taken;
}

bool Connection::wrote(const void* data, std::size_t size) noexcept {
    const std::uint64_t before = out_.ended();
    out_.feed({static_cast<const std::byte*>(data), size});
    return out_.ended() != before;
}

}  // namespace cede::agent
