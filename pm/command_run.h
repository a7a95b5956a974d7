// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pm/command.h"
#include "pm/config.h"

namespace cede::pm {

// Finds the pool, has the command done there, prints what it says. The exit status: 0 done, 1 not.
[[nodiscard]] int run_command(const Command& command, const Environment& environment);

}  // namespace cede::pm
