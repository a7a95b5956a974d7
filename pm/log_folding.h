// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pm/config.h"

namespace cede::pm {

// Keeps an event that happens again and again from filling the log. Of lines that are the same but for their
// numbers the first `most_written` within a minute are written and the others counted; when the minute is
// over, one line says how many. Pure: the time is given, nothing is written here.
class LogFolding {
  public:
    using Clock = std::chrono::steady_clock;
    struct Line {
        LogLevel level;
        std::string text;
    };

    static constexpr unsigned most_written = 5;
    static constexpr auto window = std::chrono::minutes{1};
    static constexpr std::size_t most_kinds = 64;  // beyond it the oldest minute ends early

    // What to write now, in this order: counts that are due, and the line itself unless it was only counted.
    [[nodiscard]] std::vector<Line> add(LogLevel level, std::string_view text, Clock::time_point now);

    // The counts whose minute is over.
    [[nodiscard]] std::vector<Line> end_overdue(Clock::time_point now);

    // All counts, for the end of the log.
    [[nodiscard]] std::vector<Line> end_all();

  private:
    struct Kind {
        LogLevel level;
        std::string shape;  // the text without its numbers
        std::string last;   // the last text that was counted only
        Clock::time_point since;
        std::uint64_t seen = 0;
    };

    static void end(const Kind& kind, std::vector<Line>& lines);

    std::vector<Kind> kinds_;  // the oldest first
};

}  // namespace cede::pm
