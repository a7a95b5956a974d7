// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <sys/types.h>

#include "children/spawn.h"

namespace cede::pm {

// Children that are executed each by itself instead of forked from a zygote (--spawn exec): for extensions
// that start threads when PHP starts, which a fork would leave behind.

// Executes the child of this slot. `request` is that of a zygote: the first of its inherited descriptors is
// replaced by `channel`, the child's end, and its agent is told whose it is (children::agent_variable).
// `output`: its descriptors 1 and 2, unless it is -1.
[[nodiscard]] std::expected<pid_t, children::SpawnError> execute_child(children::SpawnRequest request,
                                                                       std::uint32_t slot, int channel,
                                                                       int output);

// How many should start at once: each needs a processor for as long as PHP takes to start. At the least 2.
[[nodiscard]] unsigned most_executed_at_once() noexcept;

}  // namespace cede::pm
