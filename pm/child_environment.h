// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cede::pm {

// The environment of the first process of a generation: what the supervisor itself was given, without what
// was meant for the supervisor, and with what the agent needs. The agent takes its own variables out again
// before a script can see them (children/zygote_protocol.h).
//
// `own`: NAME=VALUE as in environ(7). Inherited descriptors are, in this order: the zygote's channel, the
// scoreboard, the handoff queue, then `listeners` listeners, and the agent's file.
[[nodiscard]] std::vector<std::string> child_environment(std::span<const char* const> own,
                                                         const std::string& agent_path, std::size_t listeners,
                                                         std::uint32_t slots);

}  // namespace cede::pm
