// SPDX-License-Identifier: Apache-2.0
#include "pm/tcp_socket.h"

#include <cerrno>
#include <cstring>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <system_error>

#include <fmt/format.h>

namespace cede::pm {
namespace {

using children::UniqueFd;

bool set_option(int fd, int level, int option, int value) {
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

std::expected<UniqueFd, TcpFailure> listen_on(const sockaddr* address, socklen_t length, Families families,
                                              int backlog) {
    UniqueFd fd{::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP)};
    if (!fd) {
        return std::unexpected(TcpFailure{errno, "socket"});
    }
    // Set for both values: the system's default (net.ipv6.bindv6only) must not decide who is served.
    const int v6_only = families == Families::v6_only ? 1 : 0;
    if (!set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) ||
        !set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1) ||
        (address->sa_family == AF_INET6 && !set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, v6_only))) {
        return std::unexpected(TcpFailure{errno, "setsockopt"});
    }
    if (::bind(fd.get(), address, length) != 0) {
        return std::unexpected(TcpFailure{errno, "bind"});
    }
    // With SO_REUSEADDR two sockets can be bound to one port; the second one fails here.
    if (::listen(fd.get(), backlog) != 0) {
        return std::unexpected(TcpFailure{errno, "listen"});
    }
    return fd;
}

}  // namespace

bool TcpFailure::no_family() const noexcept {
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

std::expected<UniqueFd, TcpFailure> listen_on_tcp4(in_addr host, std::uint16_t port, int backlog) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr = host;
    return listen_on(reinterpret_cast<const sockaddr*>(&address), sizeof address, Families::both, backlog);
}

std::expected<UniqueFd, TcpFailure> listen_on_tcp6(in6_addr host, std::uint32_t scope, std::uint16_t port,
                                                   Families families, int backlog) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = host;
    address.sin6_scope_id = scope;
    return listen_on(reinterpret_cast<const sockaddr*>(&address), sizeof address, families, backlog);
}

Error tcp_error(const std::string& name, const TcpFailure& failure) {
    const std::string port = name.substr(name.rfind(':') + 1);
    std::string problem;
    switch (failure.error) {
        case EADDRINUSE:
            problem = fmt::format(
                "another socket listens there already; see whose with: ss -ltnp 'sport = :{}', and stop it "
                "or choose "
                "another port",
                port);
            break;
        case EACCES:
            problem =
                "ports below 1024 are for root; choose one from 1024 on, start cede as root, or let systemd "
                "open it "
                "(see also sysctl net.ipv4.ip_unprivileged_port_start)";
            break;
        case EADDRNOTAVAIL:
            problem = "no interface of this machine has this address; 'ip address' shows those it has";
            break;
        case EAFNOSUPPORT:
            problem = "this machine has no IPv6; give an IPv4 address, like 127.0.0.1";
            break;
        case EMFILE:
        case ENFILE:
            problem = "no more descriptors; raise the limit on open files";
            break;
        default:
            problem = fmt::format("{} failed: {}; choose another address", failure.step,
                                  std::generic_category().message(failure.error));
    }
    return Error{fmt::format("{}: {}", name, problem), Error::failure};
}

std::uint16_t bound_port(int fd) noexcept {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
        return 0;
    }
    // The port is at the same place in both.
    sockaddr_in6 address{};
    std::memcpy(&address, &storage, sizeof address);
    return storage.ss_family == AF_INET || storage.ss_family == AF_INET6 ? ntohs(address.sin6_port)
                                                                         : std::uint16_t{0};
}

}  // namespace cede::pm
