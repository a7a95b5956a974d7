// SPDX-License-Identifier: Apache-2.0
#include "pm/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstddef>
#include <cstring>
#include <net/if.h>
#include <optional>
#include <sys/un.h>

#include <fmt/format.h>

#include "pm/config_value.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

constexpr std::size_t longest_path = sizeof(sockaddr_un::sun_path) - 1;

std::unexpected<Error> refuse(std::string_view text, std::string_view problem) {
    return std::unexpected(Error{fmt::format("{} {}", quoted(text), problem), Error::usage});
}

std::string presentation(int family, const void* address) {
    char buffer[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(family, address, buffer, sizeof buffer);
    return buffer;
}

std::string tcp6_name(const in6_addr& address, std::uint32_t scope, std::uint16_t port) {
    std::string host = presentation(AF_INET6, &address);
    char interface[IF_NAMESIZE] = "";
    if (scope != 0) {
        host += fmt::format("%{}", ::if_indextoname(scope, interface) != nullptr ? std::string{interface}
                                                                                 : std::to_string(scope));
    }
    return fmt::format("[{}]:{}", host, port);
}

std::expected<Address, Error> parse_path(std::string_view text, std::string_view path) {
    if (!path.starts_with('/')) {
        return refuse(text, "is not a full path; write it from the root, like /run/cede.sock");
    }
    if (path.size() > longest_path) {
        return refuse(
            text, fmt::format("is too long for a socket: {} bytes, and {} is the most; choose a shorter path",
                              path.size(), longest_path));
    }
    if (path.ends_with('/')) {
        return refuse(text, "ends with '/', which only a directory can; add the name of the socket file");
    }
    if (path.find('\0') != std::string_view::npos) {
        return refuse(text, "has a NUL in it; remove it");
    }
    Address address;
    address.form = Address::Form::unix_path;
    address.path = path;
    return address;
}

bool parse_tcp6_host(std::string_view host, Address& address) {
    const std::size_t percent = host.find('%');
    const std::string number{host.substr(0, percent)};
    if (::inet_pton(AF_INET6, number.c_str(), &address.v6) != 1) {
        return false;
    }
    if (percent != std::string_view::npos) {
        address.scope = ::if_nametoindex(std::string{host.substr(percent + 1)}.c_str());
        return address.scope != 0;
    }
    return true;
}

// The host without its port; an error unless it is one of the forms that need no name server.
std::expected<Address, Error> parse_host(std::string_view text, std::string_view host) {
    Address address;
    if (host == "*") {
        address.form = Address::Form::any;
        return address;
    }
    if (host == "localhost") {
        address.form = Address::Form::localhost;
        return address;
    }
    if (host.starts_with('[') && host.ends_with(']')) {
        address.form = Address::Form::tcp6;
        if (!parse_tcp6_host(host.substr(1, host.size() - 2), address)) {
            return refuse(text, "has no valid IPv6 address between [ and ]; write it like [::1]:9000");
        }
        return address;
    }
    if (host.find(':') != std::string_view::npos) {
        return refuse(text, "looks like an IPv6 address; put it in brackets, like [::1]:9000");
    }
    if (::inet_pton(AF_INET, std::string{host}.c_str(), &address.v4) != 1) {
        return refuse(text,
                      "has no numeric address, and cede asks no name server; write it like 127.0.0.1:9000, "
                      "[::1]:9000, *:9000 or localhost:9000");
    }
    return address;
}

}  // namespace

std::string Address::name() const {
    switch (form) {
        case Form::tcp4:
            return fmt::format("{}:{}", presentation(AF_INET, &v4), port);
        case Form::tcp6:
            return tcp6_name(v6, scope, port);
        case Form::any:
            return fmt::format("*:{}", port);
        case Form::localhost:
            return fmt::format("localhost:{}", port);
        case Form::unix_path:
            break;
    }
    return path;
}

std::expected<Address, Error> parse_address(std::string_view text) {
    for (const std::string_view scheme : {"unix://", "unix:"}) {
        if (text.starts_with(scheme)) {
            return parse_path(text, text.substr(scheme.size()));
        }
    }
    // OpenLiteSpeed's spelling: the second slash is the path's first, and a third one changes nothing.
    for (const std::string_view scheme : {"uds://", "UDS://"}) {
        if (text.starts_with(scheme)) {
            const std::string_view rest = text.substr(scheme.size());
            return parse_path(text, rest.starts_with('/') ? rest : text.substr(scheme.size() - 1));
        }
    }
    if (text.find('/') != std::string_view::npos) {
        return parse_path(text, text);
    }
    if (text.find('\0') != std::string_view::npos) {
        return refuse(text, "has a NUL in it; remove it");
    }
    if (!text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos) {
        return refuse(text,
                      fmt::format("is only a port; write 127.0.0.1:{0} for this machine alone, or *:{0} for "
                                  "everybody who can reach it",
                                  text));
    }
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || text.ends_with(']')) {
        return refuse(
            text, "is not an address; write it like 127.0.0.1:9000, [::1]:9000, *:9000 or /run/cede.sock");
    }
    auto address = parse_host(text, text.substr(0, colon));
    if (!address) {
        return address;
    }
    const auto port = parse_number(text.substr(colon + 1), 0, 65535);
    if (!port) {
        return refuse(text, "has a bad port: " + port.error());
    }
    address->port = static_cast<std::uint16_t>(*port);
    return address;
}

std::string printable(const sockaddr_storage& address, socklen_t length) {
    if (address.ss_family == AF_INET && length >= sizeof(sockaddr_in)) {
        sockaddr_in in{};
        std::memcpy(&in, &address, sizeof in);
        return fmt::format("{}:{}", presentation(AF_INET, &in.sin_addr), ntohs(in.sin_port));
    }
    if (address.ss_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        sockaddr_in6 in{};
        std::memcpy(&in, &address, sizeof in);
        return tcp6_name(in.sin6_addr, in.sin6_scope_id, ntohs(in.sin6_port));
    }
    if (address.ss_family != AF_UNIX) {
        return fmt::format("(address family {})", address.ss_family);
    }
    // unix(7): the length tells an unnamed socket, and the name need not end with a NUL.
    constexpr std::size_t prefix = offsetof(sockaddr_un, sun_path);
    sockaddr_un in{};
    std::memcpy(&in, &address, std::min<std::size_t>(length, sizeof in));
    if (length <= prefix) {
        return "unix:(unnamed)";
    }
    const std::string_view name{in.sun_path, std::min<std::size_t>(length - prefix, sizeof in.sun_path)};
    if (name.front() == '\0') {
        return fmt::format("unix:@{}", name.substr(1));
    }
    return std::string{name.substr(0, name.find('\0'))};
}

}  // namespace cede::pm
