// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cede::pm::limits {

// What a configuration may ask for at most. Generous: they catch slips of the keyboard, not ambition.
inline constexpr unsigned most_children = 10000;
inline constexpr unsigned most_parked = 1000000;
inline constexpr unsigned largest_backlog = 1000000;
inline constexpr std::size_t largest_config_file = 1024 * 1024;  // bytes
inline constexpr unsigned most_listeners = 64;
inline constexpr unsigned largest_descriptor = 1048575;
inline constexpr std::size_t longest_variable_name = 63;  // as their places in the scoreboard
inline constexpr std::size_t longest_ping_path = 127;
inline constexpr std::size_t shortest_output_line = 256;  // bytes
inline constexpr std::size_t longest_output_line = 1024 * 1024;

}  // namespace cede::pm::limits
