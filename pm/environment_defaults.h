// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>

#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// What the variables that web servers set for php-cgi and lsphp say, for the settings that neither the
// command line nor the file has: the number of children, the limits of requests and of their time. An error
// names the variable and the option; exit status 2.
std::expected<void, Error> apply_environment(Config& config, const Environment& environment);

// Whether lsphp's own parent process would end when its parent does (lsapilib.c, LSAPI_Init_Env_Parameters):
// it has children, and is not told to let its parent go.
[[nodiscard]] bool ends_with_parent(const Environment& environment);

}  // namespace cede::pm
