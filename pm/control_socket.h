// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "children/unique_fd.h"
#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// The socket at which commands come in.
struct ControlSocket {
    children::UniqueFd fd;  // listening, close-on-exec, non-blocking; none: there is no control socket
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;

    // The socket file, if it is still ours.
    void remove_file() const noexcept;
};

// Makes it, mode 0600, where --control says, else at the default place (docs/control.md), for the pool that
// listens at `address`. A dead socket file is replaced; a live one of the default name makes it
// NAME.PID.sock. An error with --control is one; without it, a reason to go on without a control socket.
std::expected<ControlSocket, Error> open_control_socket(const Config& config, std::string_view address,
                                                        const Environment& environment);

// --control, before anything is started: whether a socket can be made there.
std::expected<void, Error> check_control(const Config& config);

// The socket files at the default places, each of which may be dead or somebody else's; sorted.
std::vector<std::string> find_control_sockets(const Environment& environment, uid_t euid);

}  // namespace cede::pm
