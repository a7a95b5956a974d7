// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// Messages with at most two descriptors over a SOCK_SEQPACKET socket (unix(7), SCM_RIGHTS); without a
// descriptor send_message serves any socket. Used by supervisor and agent alike: no allocation, errno is left
// as the kernel set it.
namespace cede::children {

// Sends `size` bytes with `fd` attached (-1: none), and behind it `second`, unless one of them is -1. Never
// blocks, never raises SIGPIPE.
// Returns true when the whole message was sent; else errno says why (EAGAIN: the queue is full).
[[nodiscard]] bool send_message(int socket, const void* data, std::size_t size, int fd,
                                int second = -1) noexcept;

struct Received {
    enum class Kind { message, nothing, closed, failed } kind = Kind::nothing;
    std::size_t size = 0;  // of the whole message, which may be more than there was room for
    int fd = -1;           // the receiver owns it; close-on-exec
};
// Receives one message, without blocking unless `wait`. `nothing` is EAGAIN or EINTR, `closed` the end of the
// stream, `failed` anything else (errno). A second descriptor in a message goes to `second`, if that is
// given, and is then the receiver's like the first; -1 if there is none. Any other is closed, never leaked.
[[nodiscard]] Received receive_message(int socket, void* data, std::size_t capacity, bool wait,
                                       int* second = nullptr) noexcept;

}  // namespace cede::children
