// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pm/config.h"

namespace cede::pm {

// Takes NAME=VALUE apart. Names that scripts could not use, and those by which cede and the children's
// programs are controlled, are refused with the reason.
[[nodiscard]] std::expected<std::pair<std::string, std::string>, std::string> parse_variable(
    std::string_view text);

// What the options make of the supervisor's own environment. A value `$NAME` is what `own` has under NAME,
// and empty if it has not, as in php-fpm. NAME=VALUE in both.
[[nodiscard]] std::vector<std::string> chosen_environment(std::span<const char* const> own,
                                                          const EnvironmentOptions& options);

// The environment of the first process of a generation: what was chosen for it, without what was meant
// for the supervisor or would mislead a child, and with what the agent and PHP's start need. The agent takes
// those out again before a script can see them (children/zygote_protocol.h).
//
// `own`: NAME=VALUE as in environ(7), of chosen_environment(). Inherited descriptors are, in this order: the
// zygote's channel, the scoreboard, the handoff queue, then `listeners` listeners, and the agent's file.
[[nodiscard]] std::vector<std::string> child_environment(std::span<const char* const> own,
                                                         const std::string& agent_path, std::size_t listeners,
                                                         std::uint32_t slots);

// The environment of a lone lsphp that serves one connection, without agent and supervisor: all that lsphp
// understands is its own business.
[[nodiscard]] std::vector<std::string> lone_environment(std::span<const char* const> own);

}  // namespace cede::pm
