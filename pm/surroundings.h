// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "children/spawn.h"
#include "pm/config.h"
#include "pm/config_value.h"

namespace cede::pm {

// Values of the options that say where and how children run. The error says what is wrong with the value and
// what would be right.

// From the root, and without "..": what counts must not depend on where cede was started.
Value<std::string> parse_directory(std::string_view text);
// Permission bits in octal that new files do not get: `022`, `0077`, `0`.
Value<unsigned> parse_umask(std::string_view text);
// -20 to 19.
Value<int> parse_nice(std::string_view text);
// From 256, what cede itself needs in a child being among them, to the kernel's own limit.
Value<unsigned> parse_descriptor_limit(std::string_view text);
// Bytes, or `unlimited`, which is RLIM_INFINITY.
Value<std::uint64_t> parse_core_limit(std::string_view text);
// What ps(1) can show: no control characters.
Value<std::string> parse_title(std::string_view text);

// What --chroot, --chdir, --umask, --nice, --rlimit-nofile and --rlimit-core say.
[[nodiscard]] children::Surroundings surroundings_of(const Config& config);

// Which step of a start failed, why, and the remedy: "can't change the root directory: ...".
[[nodiscard]] std::string explain(const children::SpawnError& error);
// The same behind the place of the option that asked for the step.
[[nodiscard]] std::string explain(const children::SpawnError& error, const Config& config);

}  // namespace cede::pm
