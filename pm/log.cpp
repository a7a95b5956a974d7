// SPDX-License-Identifier: Apache-2.0
#include "pm/log.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <poll.h>
#include <string>
#include <syslog.h>
#include <unistd.h>
#include <vector>

#include "pm/log_folding.h"
#include "pm/log_outlet.h"
#include "pm/log_writer.h"

namespace cede::pm {
namespace {

using Clock = LogWriter::Clock;

// What goes wrong may do so a thousand times in a second. The rest is what somebody did, or asked to see.
constexpr LogLevel least_folded = LogLevel::warning;

LogLevel lowest = LogLevel::notice;

std::unique_ptr<LogOutlet> on_stderr() {
    return std::make_unique<InheritedOutlet>(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
}

struct Log {
    LogWriter writer{on_stderr(), LogFormat::text};
    LogFolding folding;
    std::uint64_t lost_before = 0;  // by writers that there were before this one

    void write(const std::vector<LogFolding::Line>& lines, Clock::time_point now) {
        for (const LogFolding::Line& line : lines) {
            writer.write(line.level, line.text, now);
        }
    }
};

Log& the_log() {
    static Log one;
    return one;
}

// A log that runs out of memory loses a line, nothing else.
template <typename Action>
void try_to(Action action) noexcept {
    try {
        action(the_log(), Clock::now());
    } catch (const std::exception&) {
        return;
    }
}

std::expected<std::unique_ptr<LogOutlet>, std::string> open_outlet(const std::string& target) {
    if (target == "stderr") {
        return on_stderr();
    }
    if (target == "syslog") {
        return SyslogOutlet::open(_PATH_LOG);
    }
    return FileOutlet::open(target);
}

Error located(const Config& config, const std::string& problem) {
    return Error{fmt::format("{}: {}", where(config, "log"), problem)};
}

bool is_elsewhere(const Log& log) {
    return log.writer.outlet().stamp() == LogStamp::syslog || !log.writer.outlet().path().empty();
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
    try_to([&](Log& log, Clock::time_point now) {
        if (level <= least_folded) {
            log.write(log.folding.add(level, line, now), now);
        } else {
            log.write(log.folding.end_overdue(now), now);
            log.writer.write(level, line, now);
        }
    });
}

void log_output(std::string_view author, std::string_view text, std::uint64_t left_out) noexcept {
    try_to([&](Log& log, Clock::time_point now) {
        log.write(log.folding.end_overdue(now), now);
        log.writer.write(LogLevel::notice, text, now, author, left_out);
    });
}

void log_always(LogLevel level, std::string_view line) noexcept {
    try_to([&](Log& log, Clock::time_point now) { log.writer.write(level, line, now); });
}

std::expected<void, Error> open_log(const Config& config) {
    auto outlet = open_outlet(config.log);
    if (!outlet) {
        return std::unexpected(located(config, outlet.error()));
    }
    settle_log();
    the_log().lost_before += the_log().writer.lost();
    the_log().writer = LogWriter{std::move(*outlet), config.log_format};
    return {};
}

std::expected<void, Error> check_log(const Config& config) {
    if (config.log == "syslog") {
        if (const auto opened = SyslogOutlet::open(_PATH_LOG); !opened) {
            return std::unexpected(located(config, opened.error()));
        }
    } else if (config.log != "stderr") {
        if (const std::string problem = log_file_objection(config.log); !problem.empty()) {
            return std::unexpected(located(config, problem));
        }
    }
    return {};
}

std::expected<void, Error> reopen_log() noexcept {
    std::expected<void, Error> outcome;
    try_to([&](Log& log, Clock::time_point now) {
        outcome = log.writer.reopen();
        const std::string path = log.writer.outlet().path();
        if (outcome && !path.empty() && log_enabled(LogLevel::notice)) {
            log.writer.write(LogLevel::notice, fmt::format("the log {} was reopened", path), now);
        }
    });
    return outcome;
}

void tend_log() noexcept {
    try_to([](Log& log, Clock::time_point now) {
        log.write(log.folding.end_overdue(now), now);
        log.writer.tend();
    });
}

std::uint64_t lost_log_lines() noexcept {
    std::uint64_t lost = 0;
    try_to([&lost](const Log& log, Clock::time_point) { lost = log.lost_before + log.writer.lost(); });
    return lost;
}

bool log_waits() noexcept {
    return the_log().writer.waits();
}

void settle_log() noexcept {
    try_to([](Log& log, Clock::time_point now) {
        log.write(log.folding.end_all(), now);
        constexpr int longest_ms = 200;
        for (int waited = 0; waited < longest_ms && log.writer.waits(); waited += 5) {
            ::poll(nullptr, 0, 5);
            log.writer.tend();
        }
    });
}

void log_last_words(std::string_view line) noexcept {
    try_to([line](Log& log, Clock::time_point now) {
        if (log.writer.outlet().stamp() != LogStamp::journal) {
            fmt::print(stderr, "cede: error: {}\n", line);
        }
        if (log.writer.outlet().stamp() == LogStamp::journal || is_elsewhere(log)) {
            log.writer.write(LogLevel::error, line, now);
        }
    });
}

}  // namespace cede::pm
