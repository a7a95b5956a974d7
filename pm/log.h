// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// The log of this process, for its one thread. One event is one line, whatever is in it; none waits for
// whoever reads the log. Before open_log() it is text on stderr. Lines from `level` up are written.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void write_log(LogLevel level, std::string_view line) noexcept;

template <typename... Arguments>
void log(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (log_enabled(level)) {
        write_log(level, fmt::format(format, std::forward<Arguments>(arguments)...));
    }
}

// A line of what the process `author` ("child=3 gen=1 pid=57") has written to its descriptors 1 and 2. The
// level does not apply to it, and it is never folded. `left_out`: bytes behind it that are not there any
// more, which is said.
void log_output(std::string_view author, std::string_view text, std::uint64_t left_out = 0) noexcept;

// A line of ours that is as important, whatever the level is.
void log_always(LogLevel level, std::string_view line) noexcept;

// From here on the log is what --log and --log-format say. On an error it is what it was.
[[nodiscard]] std::expected<void, Error> open_log(const Config& config);

// As open_log() would find out, but nothing is opened or made.
[[nodiscard]] std::expected<void, Error> check_log(const Config& config);

// Opens the file anew and says so in the log, either way; where the log is none, nothing happens. On an error
// the old file is kept.
std::expected<void, Error> reopen_log() noexcept;

// To be called now and then: tells of lines that were lost or counted instead of written, when it is time,
// and writes those that a slow reader had no room for. While there are such, it should be called soon.
void tend_log() noexcept;
[[nodiscard]] bool log_waits() noexcept;

// How many lines this process could not write so far.
[[nodiscard]] std::uint64_t lost_log_lines() noexcept;

// Before the last line, and behind it: all counts that are still open, and what a slow reader takes within a
// moment.
void settle_log() noexcept;

// An error that ends the program: on stderr, where whoever started it looks, and in the log if that is
// elsewhere.
void log_last_words(std::string_view line) noexcept;

}  // namespace cede::pm
