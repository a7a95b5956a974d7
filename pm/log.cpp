// SPDX-License-Identifier: Apache-2.0
#include "pm/log.h"

#include <unistd.h>

namespace cede::pm {
namespace {

LogLevel lowest = LogLevel::notice;

std::string_view name_of(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::error:
            return "error";
        case LogLevel::warning:
            return "warning";
        case LogLevel::notice:
            return "notice";
        case LogLevel::info:
            return "info";
        case LogLevel::debug:
            return "debug";
    }
    return "";
}

}  // namespace

void set_log_level(LogLevel level) noexcept {
    lowest = level;
}

bool log_enabled(LogLevel level) noexcept {
    return level <= lowest;
}

void write_log(LogLevel level, std::string_view line) noexcept {
    if (!log_enabled(level)) {
        return;
    }
    fmt::memory_buffer text;
    fmt::format_to(std::back_inserter(text), "cede: {}: {}\n", name_of(level), line);
    // A full disk or a closed terminal must not stop the service: the line is lost, nothing else.
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace cede::pm
