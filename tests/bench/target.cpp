// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/target.h"

#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>
#include <string_view>
#include <sys/un.h>
#include <unistd.h>

namespace cede::bench {

namespace {

[[noreturn]] void refuse(const std::string& address, const char* why) {
    throw std::invalid_argument("--address " + address + ": " + why +
                                "; give 127.0.0.1:PORT, [::1]:PORT, an absolute path or uds://path");
}

in_port_t parse_port(const std::string& address, std::size_t colon) {
    in_port_t port = 0;
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
    if (error != std::errc{} || stop != end || port == 0) {
        refuse(address, "no port from 1 to 65535 behind the last colon");
    }
    return htons(port);
}

}  // namespace

Target::Target(const std::string& address) {
    constexpr std::string_view scheme = "uds://";
    const bool has_scheme = address.starts_with(scheme);
    if (has_scheme || address.starts_with('/')) {
        // The path begins with the last slash of the scheme.
        const std::string path = has_scheme ? address.substr(scheme.size() - 1) : address;
        sockaddr_un local{};
        local.sun_family = AF_UNIX;
        if (path.size() >= sizeof local.sun_path) {
            refuse(address, "the path is longer than 107 bytes");
        }
        std::memcpy(local.sun_path, path.data(), path.size());
        std::memcpy(&address_, &local, sizeof local);
        size_ = sizeof local;
        return;
    }
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos) {
        refuse(address, "neither a path nor a host and port");
    }
    const std::string host = address.substr(0, colon);
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = parse_port(address, colon);
        std::memcpy(&address_, &v4, sizeof v4);
        size_ = sizeof v4;
    } else if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
               inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = parse_port(address, colon);
        std::memcpy(&address_, &v6, sizeof v6);
        size_ = sizeof v6;
    } else {
        refuse(address, "the host is not an IP address");
    }
}

int Target::connect() const noexcept {
    const int fd = ::socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address_), size_) == 0 || errno == EINPROGRESS) {
        return fd;
    }
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
}

}  // namespace cede::bench
