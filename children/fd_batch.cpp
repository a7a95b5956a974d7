// SPDX-License-Identifier: Apache-2.0
#include "children/fd_batch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace cede::children {
namespace {

struct alignas(cmsghdr) Control {
    char bytes[CMSG_SPACE(sizeof(int) * 2)];
};

}  // namespace

std::size_t send_batch(int socket, std::span<const OutgoingFd> messages) noexcept {
    const std::size_t count = std::min(messages.size(), fd_batch_size);
    std::array<mmsghdr, fd_batch_size> headers{};
    std::array<iovec, fd_batch_size> parts{};
    std::array<Control, fd_batch_size> controls{};
    for (std::size_t i = 0; i < count; ++i) {
        parts[i] = {const_cast<void*>(messages[i].data), messages[i].size};
        msghdr& message = headers[i].msg_hdr;
        message.msg_iov = &parts[i];
        message.msg_iovlen = 1;
        message.msg_control = controls[i].bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int));
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &messages[i].fd, sizeof(int));
    }
    const int sent =
        sendmmsg(socket, headers.data(), static_cast<unsigned>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

std::size_t receive_batch(int socket, std::size_t size, std::vector<IncomingFd>& into) {
    std::array<mmsghdr, fd_batch_size> headers{};
    std::array<iovec, fd_batch_size> parts{};
    std::array<std::array<std::byte, IncomingFd::longest>, fd_batch_size> data{};
    std::array<Control, fd_batch_size> controls;
    for (std::size_t i = 0; i < fd_batch_size; ++i) {
        parts[i] = {data[i].data(), data[i].size()};
        headers[i].msg_hdr.msg_iov = &parts[i];
        headers[i].msg_hdr.msg_iovlen = 1;
        headers[i].msg_hdr.msg_control = controls[i].bytes;
        headers[i].msg_hdr.msg_controllen = sizeof controls[i].bytes;
    }
    const int received =
        recvmmsg(socket, headers.data(), fd_batch_size, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, nullptr);
    for (int i = 0; i < received; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const mmsghdr& one = headers[index];
        for (cmsghdr* header = CMSG_FIRSTHDR(&one.msg_hdr); header != nullptr;
             header = CMSG_NXTHDR(const_cast<msghdr*>(&one.msg_hdr), header)) {
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
                continue;
            }
            const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t n = 0; n < count; ++n) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(header) + n * sizeof fd, sizeof fd);
                UniqueFd owned{fd};
                if (n == 0 && one.msg_len == size && (one.msg_hdr.msg_flags & MSG_TRUNC) == 0) {
                    into.push_back({data[index], std::move(owned)});
                }
            }
        }
    }
    return received > 0 ? static_cast<std::size_t>(received) : 0;
}

}  // namespace cede::children
