// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// What can be known before anything is started. All errors have exit status 1.

// The child binary: a regular file that we may execute, and either a dynamically linked ELF program of our
// own machine type whose loader exists (else the agent could not be preloaded), not set-user-id, or a `#!`
// script whose interpreter exists, and not cede. `path` is not searched for in PATH; `place` starts messages.
std::expected<void, Error> check_command(const std::string& path, std::string_view place = "command");

// As resolve_identity(), without the result.
std::expected<void, Error> check_identity(const Config& config, uid_t euid);

// Every --listen parses and is there once; the directory of a socket file exists and is writable, and what is
// at the path now is nothing, or a socket; --listen-owner and --listen-group exist. Opens no socket.
std::expected<void, Error> check_listen(const Config& config);

// The children's surroundings and identity, tried out in a process of its own, and what children need there:
// the command, in the root and directory that it is looked up in, and with --chroot a /proc. Only for a
// process with one thread.
std::vector<Error> check_start(const Config& config, uid_t euid);

// Whether we may signal the children: a sentence for a warning if not.
std::string check_signalling(const Config& config, uid_t euid);

// All of the above but the last, and that children which are known to be lsphp are not root; every error, not
// only the first. Empty: no objection.
std::vector<Error> check_all(const Config& config, uid_t euid);

}  // namespace cede::pm
