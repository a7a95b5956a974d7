// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "pm/config.h"

namespace cede::pm {

// One line an event, on stderr, in one write(2). Lines from `level` up are written.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void write_log(LogLevel level, std::string_view line) noexcept;

template <typename... Arguments>
void log(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (log_enabled(level)) {
        write_log(level, fmt::format(format, std::forward<Arguments>(arguments)...));
    }
}

}  // namespace cede::pm
