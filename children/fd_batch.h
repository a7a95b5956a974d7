// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "children/unique_fd.h"

// Many small messages with a descriptor each in one system call (sendmmsg(2), recvmmsg(2)). The supervisor's
// side only.
namespace cede::children {

inline constexpr std::size_t fd_batch_size = 32;

struct OutgoingFd {
    const void* data = nullptr;
    std::size_t size = 0;
    int fd = -1;
};
// Sends from the front, without blocking, at the most fd_batch_size. Returns how many the kernel took.
[[nodiscard]] std::size_t send_batch(int socket, std::span<const OutgoingFd> messages) noexcept;

struct IncomingFd {
    static constexpr std::size_t longest = 16;
    std::array<std::byte, longest> data{};
    UniqueFd fd;
};
// Receives what is there, without blocking, at the most fd_batch_size messages, and appends those that are
// `size` bytes long, IncomingFd::longest at the most, and have a descriptor. Returns how many messages there
// were; fewer than fd_batch_size: the queue was empty then. A descriptor in any other message is closed.
[[nodiscard]] std::size_t receive_batch(int socket, std::size_t size, std::vector<IncomingFd>& into);

}  // namespace cede::children
