// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "pm/config.h"

namespace cede::pm {

// Where control sockets are, without looking.

struct ControlDirectory {
    std::string path;
    std::optional<mode_t> make;  // it is ours to make, with this mode; none: it must exist
};

// In the order in which they are tried: what the service manager made for us (RUNTIME_DIRECTORY,
// systemd.exec(5)), then /run/cede for root, and for others $XDG_RUNTIME_DIR/cede and /tmp/cede-UID.
std::vector<ControlDirectory> control_directories(const Environment& environment, uid_t euid);

// What a pool's socket is called, without ".sock": by its title, else by its first listening address as it is
// printed, else by its pid. Letters, digits, and "-._" within, whatever these have in them; no dot in front.
std::string control_name(std::string_view title, std::string_view address, pid_t pid);

// The path of NAME.sock, or of NAME.PID.sock. A name that is too long for sun_path (unix(7)) is cut, and a
// hash of it stands for the rest. The error: the directory's own path is too long.
std::expected<std::string, std::string> control_file(const std::string& directory, std::string_view name,
                                                     std::optional<pid_t> pid = std::nullopt);

// Whether the file's name is one that control_file() makes of this name, with or without a pid.
bool is_control_file(std::string_view file, std::string_view name);

}  // namespace cede::pm
