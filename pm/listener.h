// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "children/unique_fd.h"
#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// One listening socket: close-on-exec, non-blocking, above descriptor 2.
struct Listener {
    enum class Kind { tcp4, tcp6, unix_stream };

    children::UniqueFd fd;
    Kind kind = Kind::tcp4;
    std::string name;      // printable address: "127.0.0.1:9000", "*:9000", "/run/x.sock"
    bool created = false;  // by us; else inherited
    std::string access;  // who may connect to a socket file of ours: "mode 0660, owner root, group www-data"

    // The socket file, if we created one. Its device and inode say whether it is still ours.
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;

    int backlog_asked = 0;           // inherited: as granted, for it was not us who asked
    int backlog_granted = 0;         // read back from the kernel
    bool nonblocking_before = true;  // false: inherited without O_NONBLOCK

    // Removes the socket file unless it is inherited, gone, or by now another instance's. Never fails loudly.
    void remove_socket_file() noexcept;

    // listen(2) once more; what was granted is read back. Inherited sockets are left alone, unless who wants
    // it has said so (`--backlog auto`): any process that has one may do that (listen(2)).
    enum class Whose { ours, anybodys };
    void set_backlog(int asked, Whose whose = Whose::ours) noexcept;

    // Gives an inherited socket back as it came: O_NONBLOCK lives in the open file description that the one
    // who handed it over still uses (fcntl(2)).
    void restore_flags() noexcept;
};

// net.core.somaxconn, the most that the kernel grants; nothing if it can't be read.
[[nodiscard]] std::optional<unsigned> most_granted() noexcept;

struct OpenedListeners {
    std::vector<Listener> listeners;    // at least one
    std::vector<std::string> warnings;  // one line each, for the log
};

// Opens every --listen; without any, adopts what systemd handed over (sd_listen_fds(3): LISTEN_PID is `self`,
// LISTEN_FDS descriptors from 3 on), else the listening socket on descriptor 0, which is then replaced by
// /dev/null. `listen_pid` and `listen_fds` are the variables' values, null if not set. On an error nothing is
// left behind: no descriptor, no socket file.
std::expected<OpenedListeners, Error> open_listeners(const Config& config, pid_t self, const char* listen_pid,
                                                     const char* listen_fds);

}  // namespace cede::pm
