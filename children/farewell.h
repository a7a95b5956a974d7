// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "children/fd_passing.h"
#include "protocol/lsapi.h"

// Used by supervisor and agent alike.
namespace cede::children {

// CONN_CLOSE (docs/lsapi.md): the peer of this LSAPI connection closes as soon as it has read it. Never
// blocks. False: it could not be sent.
[[nodiscard]] inline bool announce_close(int connection) noexcept {
    constexpr auto packet = protocol::lsapi::bare_packet(protocol::lsapi::PacketType::conn_close);
    return send_message(connection, packet.data(), packet.size(), -1);
}

}  // namespace cede::children
