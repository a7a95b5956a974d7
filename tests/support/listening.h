// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <vector>

#include "children/unique_fd.h"

namespace cede::tests {

using children::UniqueFd;

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

inline SocketAddress loopback4(std::uint16_t port = 0) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SocketAddress address;
    std::memcpy(&address.storage, &in, sizeof in);
    address.length = sizeof in;
    return address;
}

inline SocketAddress loopback6(std::uint16_t port = 0) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    in.sin6_addr = in6addr_loopback;
    SocketAddress address;
    std::memcpy(&address.storage, &in, sizeof in);
    address.length = sizeof in;
    return address;
}

inline SocketAddress unix_address(const std::string& path) {
    sockaddr_un in{};
    in.sun_family = AF_UNIX;
    path.copy(in.sun_path, sizeof in.sun_path - 1);
    SocketAddress address;
    std::memcpy(&address.storage, &in, sizeof in);
    address.length = sizeof in;
    return address;
}

inline UniqueFd bound_socket(const SocketAddress& address, int type = SOCK_STREAM) {
    UniqueFd fd{::socket(address.storage.ss_family, type | SOCK_CLOEXEC, 0)};
    if (!fd || ::bind(fd.get(), address.get(), address.length) != 0) {
        throw std::runtime_error{std::string{"bind: "} + std::strerror(errno)};
    }
    return fd;
}

inline UniqueFd listening_socket(const SocketAddress& address, int backlog = 64) {
    UniqueFd fd = bound_socket(address);
    if (::listen(fd.get(), backlog) != 0) {
        throw std::runtime_error{std::string{"listen: "} + std::strerror(errno)};
    }
    return fd;
}

// Where the socket is bound.
inline SocketAddress address_of(int fd) {
    SocketAddress address;
    address.length = sizeof address.storage;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
        throw std::runtime_error{"getsockname"};
    }
    return address;
}

// A non-blocking connect: 0, or errno (EINPROGRESS counts as 0).
inline int try_connect(const SocketAddress& address, UniqueFd& fd) {
    fd = UniqueFd{::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (::connect(fd.get(), address.get(), address.length) == 0 || errno == EINPROGRESS) {
        return 0;
    }
    return errno;
}

inline UniqueFd connected_to(const SocketAddress& address) {
    UniqueFd fd;
    if (const int error = try_connect(address, fd); error != 0) {
        throw std::runtime_error{std::string{"connect: "} + std::strerror(error)};
    }
    return fd;
}

// Asks again and again until `condition()` holds; false when it does not within the time.
template <typename Condition>
bool soon(Condition&& condition, std::chrono::milliseconds patience = std::chrono::seconds{5}) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= deadline) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
}

}  // namespace cede::tests
