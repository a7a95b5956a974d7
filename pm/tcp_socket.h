// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <netinet/in.h>
#include <string>
#include <string_view>

#include "children/unique_fd.h"
#include "pm/error.h"

namespace cede::pm {

enum class Families { both, v6_only };

struct TcpFailure {
    int error = 0;          // errno
    std::string_view step;  // the call that set it

    // This machine has no such address family, or no address of it.
    [[nodiscard]] bool no_family() const noexcept;
};

// A listening socket: SO_REUSEADDR, TCP_NODELAY (accepted sockets inherit it), close-on-exec, non-blocking.
std::expected<children::UniqueFd, TcpFailure> listen_on_tcp4(in_addr host, std::uint16_t port, int backlog);
std::expected<children::UniqueFd, TcpFailure> listen_on_tcp6(in6_addr host, std::uint32_t scope,
                                                             std::uint16_t port, Families families,
                                                             int backlog);

// `name` is the printable address.
Error tcp_error(const std::string& name, const TcpFailure& failure);

// The port that a socket is bound to; 0 if it is none of TCP.
std::uint16_t bound_port(int fd) noexcept;

}  // namespace cede::pm
