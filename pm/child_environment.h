// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cede::pm {

// The environment of the first process of a generation: what the supervisor itself was given, without what
// was meant for the supervisor or would mislead a child, and with what the agent and PHP's start need. The
// agent takes those out again before a script can see them (children/zygote_protocol.h).
//
// `own`: NAME=VALUE as in environ(7). Inherited descriptors are, in this order: the zygote's channel, the
// scoreboard, the handoff queue, then `listeners` listeners, and the agent's file.
[[nodiscard]] std::vector<std::string> child_environment(std::span<const char* const> own,
                                                         const std::string& agent_path, std::size_t listeners,
                                                         std::uint32_t slots);

// The environment of a lone lsphp that serves one connection, without agent and supervisor: all that lsphp
// understands is its own business.
[[nodiscard]] std::vector<std::string> lone_environment(std::span<const char* const> own);

}  // namespace cede::pm
