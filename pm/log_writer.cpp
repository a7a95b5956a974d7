// SPDX-License-Identifier: Apache-2.0
#include "pm/log_writer.h"

#include <cerrno>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {

LogWriter::LogWriter(std::unique_ptr<LogOutlet> outlet, LogFormat format) noexcept
    : outlet_{std::move(outlet)}, style_{format, outlet_->stamp()} {}

void LogWriter::write(LogLevel level, std::string_view text, Clock::time_point now, std::string_view author) {
    look_for_file(now);
    put_line(level, text, author);
}

void LogWriter::tend() {
    if (complete()) {
        (void)confess();
    }
}

std::expected<void, Error> LogWriter::reopen() {
    const std::string path = outlet_->path();
    if (path.empty()) {
        return {};
    }
    if (const int error = open_anew(); error != 0) {
        const std::string message = fmt::format(
            "the log {} can't be reopened: {}; the old file is written to until it can; correct the path or "
            "its permissions",
            path, std::generic_category().message(error));
        put_line(LogLevel::error, message);
        return std::unexpected(Error{message});
    }
    return {};
}

// 0, or an errno.
int LogWriter::open_anew() {
    if (const auto opened = outlet_->reopen(); !opened) {
        return opened.error();
    }
    if (!rest_.empty()) {
        rest_.clear();  // the beginning of it is in the old file
        ++lost_;
    }
    return 0;
}

// At the first failure it is said, and then tried in silence.
void LogWriter::look_for_file(Clock::time_point now) {
    if (now < next_look_) {
        return;
    }
    next_look_ = now + check_interval;
    if (!outlet_->moved()) {
        reopening_failed_ = false;
    } else if (reopening_failed_) {
        reopening_failed_ = open_anew() != 0;
    } else {
        reopening_failed_ = !reopen();
    }
}

void LogWriter::put_line(LogLevel level, std::string_view text, std::string_view author) {
    if (!confess() ||
        !put(render(level, text, std::chrono::system_clock::now(), style_, ::getpid(), author))) {
        ++lost_;
    }
}

// False: nothing of it was taken.
bool LogWriter::put(std::string bytes) {
    if (!complete()) {
        return false;
    }
    const std::size_t whole = bytes.size();
    rest_ = std::move(bytes);
    if (!complete() && rest_.size() == whole) {
        rest_.clear();
        return false;
    }
    return true;
}

bool LogWriter::complete() {
    while (!rest_.empty()) {
        const auto taken = outlet_->write(rest_);
        if (!taken || *taken == 0) {
            cause_ = taken ? EAGAIN : taken.error();
            return false;
        }
        rest_.erase(0, *taken);
    }
    return true;
}

bool LogWriter::confess() {
    if (lost_ == 0) {
        return true;
    }
    const std::string why =
        cause_ == EAGAIN ? "who reads it was too slow" : std::generic_category().message(cause_);
    const std::string text = fmt::format("{} line{} of the log {} lost: {}", lost_, lost_ == 1 ? "" : "s",
                                         lost_ == 1 ? "was" : "were", why);
    if (!put(render(LogLevel::warning, text, std::chrono::system_clock::now(), style_, ::getpid()))) {
        return false;
    }
    told_ += std::exchange(lost_, 0);
    return true;
}

}  // namespace cede::pm
