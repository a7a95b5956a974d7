// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <sys/types.h>
#include <vector>

#include "pm/error.h"
#include "pm/listener.h"

namespace cede::pm {

// The listening sockets that whoever started us handed over; see open_listeners(). Nothing is changed before
// all of them are found right.
std::expected<std::vector<Listener>, Error> adopt_listeners(pid_t self, const char* listen_pid,
                                                            const char* listen_fds);

}  // namespace cede::pm
