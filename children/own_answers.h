// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "protocol/short_answer.h"

// What cede itself answers to a request, whether that is done in a child or by the supervisor.
namespace cede::children {

inline constexpr std::string_view ping_lines[] = {"Cache-Control: no-cache, no-store, must-revalidate"};
// To a request for --ping-path; php-fpm's word.
inline constexpr protocol::ShortAnswer pong{200, "OK", ping_lines, "pong"};

// To a request that has waited longer than --max-wait. `lines`: "Retry-After: N".
[[nodiscard]] constexpr protocol::ShortAnswer too_busy(std::span<const std::string_view> lines) noexcept {
    return {503, "Service Unavailable", lines, "All children are busy.\n", true};
}

}  // namespace cede::children
