// SPDX-License-Identifier: Apache-2.0
#include "children/fd_passing.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace cede::children {

bool send_message(int socket, const void* data, std::size_t size, int fd, int second) noexcept {
    iovec part{const_cast<void*>(data), size};
    const int fds[] = {fd, second};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control;
        const std::size_t length = second >= 0 ? sizeof fds : sizeof fd;
        message.msg_controllen = CMSG_SPACE(length);
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(length);
        std::memcpy(CMSG_DATA(header), fds, length);
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(size);
}

Received receive_message(int socket, void* data, std::size_t capacity, bool wait, int* second) noexcept {
    if (second != nullptr) {
        *second = -1;
    }
    iovec part{data, capacity};
    // Room for more descriptors than belong there: what does not fit would be dropped by the kernel without
    // our knowing, but a sender that attaches more is broken and must be noticed.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_TRUNC | (wait ? 0 : MSG_DONTWAIT));
    Received result;
    if (size < 0) {
        const bool nothing = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        result.kind = nothing ? Received::Kind::nothing : Received::Kind::failed;
        return result;
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (result.fd < 0) {
                result.fd = fd;
            } else if (second != nullptr && *second < 0) {
                *second = fd;
            } else {
                close(fd);
            }
        }
    }
    result.kind = size == 0 && result.fd < 0 ? Received::Kind::closed : Received::Kind::message;
    result.size = static_cast<std::size_t>(size);
    return result;
}

}  // namespace cede::children
