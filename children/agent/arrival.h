// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/bytes.h"

// How long a request has waited for a child, and whether its peer is still there.
namespace cede::agent {

struct Wait {
    std::uint64_t waited_us = 0;
    bool peer_gone = false;  // it has closed the connection, or its sending side
    bool certain = true;     // false: it may have waited less
};
// Of the first request since the connection came from a queue; later ones have not waited. `hung_up`: that is
// known of the peer already. By the kernel (TCP_INFO: tcpi_last_data_recv, tcpi_state), by when the
// supervisor saw the connection become readable, or by its samples of the queue.
Wait look_at_arrival(bool hung_up) noexcept;

// By the variable that --queue-start names; nothing if there is none, or no time in it.
std::optional<std::uint64_t> wait_by_web_server(protocol::Bytes head) noexcept;

// A point in time as web servers write it, in microseconds since 1970: seconds, milliseconds or microseconds
// by their size, with or without a fraction, perhaps behind "t=" (nginx $msec, Apache %t, HAProxy).
std::optional<std::uint64_t> parse_start(std::string_view text) noexcept;

}  // namespace cede::agent
