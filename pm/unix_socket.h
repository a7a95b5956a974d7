// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <sys/types.h>

#include "children/unique_fd.h"
#include "pm/error.h"

namespace cede::pm {

// Whether a socket file can be made at `path`, without trying: its directory exists and is writable, and
// there is nothing at the path, or a socket. The result is the path with its directory resolved, so that two
// spellings of one place compare equal. Errors have exit status 1.
std::expected<std::string, Error> check_socket_path(const std::string& path);

struct SocketFile {
    children::UniqueFd fd;  // listening, close-on-exec, non-blocking
    dev_t device = 0;
    ino_t inode = 0;
    bool replaced_stale = false;
};

struct SocketAccess {
    unsigned mode = 0660;
    std::optional<uid_t> owner;  // none: left as created
    std::optional<gid_t> group;
};

// Listens at `path` (absolute, fits sun_path). Nobody can connect before mode, owner and group are as wanted.
// A socket file on which nobody listens any more is replaced; one that answers, or anything else at the path,
// is an error and left alone. Of two processes that do this at the same moment, one gets the address and the
// other an error.
std::expected<SocketFile, Error> listen_on_path(const std::string& path, const SocketAccess& access,
                                                int backlog);

// Unlinks `path` if it is still the file with this device and inode.
void remove_socket(const std::string& path, dev_t device, ino_t inode) noexcept;

}  // namespace cede::pm
