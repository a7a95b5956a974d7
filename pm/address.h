// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include "pm/error.h"

namespace cede::pm {

// What --listen names, before any socket exists. Names are never looked up, `localhost` apart.
struct Address {
    enum class Form {
        tcp4,       // 127.0.0.1:9000
        tcp6,       // [::1]:9000; [::]:9000 takes IPv6 only
        any,        // *:9000, both families on one socket where there is IPv6
        localhost,  // localhost:9000, 127.0.0.1 and ::1
        unix_path,  // /run/x.sock, unix:/run/x.sock, uds://run/x.sock
    };

    Form form = Form::tcp4;
    std::uint16_t port = 0;  // 0: the kernel chooses
    in_addr v4{};
    in6_addr v6{};
    std::uint32_t scope = 0;  // interface index of a link-local IPv6 address
    std::string path;         // absolute, fits sun_path

    // The one spelling of this address: equal for two addresses that would bind the same thing (a directory
    // on the way to a socket file may still be a symbolic link).
    [[nodiscard]] std::string name() const;
};

// Exit status 2 for all errors; the message quotes the text.
std::expected<Address, Error> parse_address(std::string_view text);

// The printable form of what a socket is bound to: "127.0.0.1:9000", "[::1]:9000", "/run/x.sock"; for an
// unnamed or abstract Unix socket "unix:(unnamed)" or "unix:@name". `length` as the kernel gave it.
std::string printable(const sockaddr_storage& address, socklen_t length);

}  // namespace cede::pm
