// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// OpenLiteSpeed without a number of children in the env of the extProcessor starts one process for each
// connection, with the connection as descriptor 0. There is nothing to manage then: an unmodified lsphp in
// our place serves it.

// Whether a connection on descriptor 0 is meant for lsphp: by --protocol, by the padding that a LiteSpeed
// server puts into the environment, or by the command's name. php-cgi could not speak FastCGI on it.
[[nodiscard]] bool is_for_lsphp(const Config& config, const Environment& environment) noexcept;

// Becomes the command, with a warning that names the variable to set. Returns only when that fails: as root,
// under whom lsphp would look for suEXEC data, or when it can not be executed.
[[nodiscard]] Error become_lone_lsphp(const Config& config, uid_t euid);

}  // namespace cede::pm
