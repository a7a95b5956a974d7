// SPDX-License-Identifier: Apache-2.0
#include "pm/log_folding.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {
namespace {

// One mark for each run of digits: 9 and 10 are both numbers.
std::string without_numbers(std::string_view text) {
    std::string shape;
    bool in_number = false;
    for (const char c : text) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit) {
            shape += c;
        } else if (!in_number) {
            shape += '0';
        }
        in_number = digit;
    }
    return shape;
}

}  // namespace

std::vector<LogFolding::Line> LogFolding::add(LogLevel level, std::string_view text, Clock::time_point now) {
    std::vector<Line> lines = end_overdue(now);
    std::string shape = without_numbers(text);
    const auto known = std::ranges::find_if(
        kinds_, [&](const Kind& kind) { return kind.level == level && kind.shape == shape; });
    if (known != kinds_.end()) {
        if (++known->seen > most_written) {
            known->last = text;
            return lines;
        }
    } else {
        if (kinds_.size() == most_kinds) {
            end(kinds_.front(), lines);
            kinds_.erase(kinds_.begin());
        }
        kinds_.push_back({level, std::move(shape), {}, now, 1});
    }
    lines.push_back({level, std::string{text}});
    return lines;
}

std::vector<LogFolding::Line> LogFolding::end_overdue(Clock::time_point now) {
    std::vector<Line> lines;
    const auto young =
        std::ranges::find_if(kinds_, [now](const Kind& kind) { return now - kind.since < window; });
    for (auto kind = kinds_.begin(); kind != young; ++kind) {
        end(*kind, lines);
    }
    kinds_.erase(kinds_.begin(), young);
    return lines;
}

std::vector<LogFolding::Line> LogFolding::end_all() {
    return end_overdue(Clock::time_point::max());
}

void LogFolding::end(const Kind& kind, std::vector<Line>& lines) {
    if (kind.seen > most_written) {
        const std::uint64_t times = kind.seen - most_written;
        lines.push_back(
            {kind.level, fmt::format("{} ... repeated {} time{}", kind.last, times, times == 1 ? "" : "s")});
    }
}

}  // namespace cede::pm
