// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <sys/types.h>
#include <vector>

#include "pm/error.h"
#include "pm/listener.h"

namespace cede::pm {

// sd_listen_fds(3): LISTEN_PID and LISTEN_FDS (null: not set) are there, and for `self`.
[[nodiscard]] bool handed_over_by_systemd(pid_t self, const char* listen_pid,
                                          const char* listen_fds) noexcept;

// Descriptor 0 is a connected stream socket: whoever started us wants one connection served, not a listener.
[[nodiscard]] bool connection_on_descriptor_0() noexcept;

// The listening sockets that whoever started us handed over; see open_listeners(). Nothing is changed before
// all of them are found right.
std::expected<std::vector<Listener>, Error> adopt_listeners(pid_t self, const char* listen_pid,
                                                            const char* listen_fds);

}  // namespace cede::pm
