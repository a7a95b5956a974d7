// SPDX-License-Identifier: Apache-2.0
#include "pm/log_writer.h"

#include <cerrno>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {

LogWriter::LogWriter(std::unique_ptr<LogOutlet> outlet, LogFormat format, std::size_t room) noexcept
    : outlet_{std::move(outlet)}, style_{format, outlet_->stamp()}, room_{room} {}

void LogWriter::write(LogLevel level, std::string_view text, Clock::time_point now, std::string_view author,
                      std::uint64_t left_out) {
    look_for_file(now);
    put_line(level, text, author, left_out);
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
    if (taken_of_first_ > 0) {  // the beginning of it is in the old file
        drop_first();
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

void LogWriter::put_line(LogLevel level, std::string_view text, std::string_view author,
                         std::uint64_t left_out) {
    if (!confess() ||
        !put(render(level, text, std::chrono::system_clock::now(), style_, ::getpid(), author, left_out))) {
        ++lost_;
    }
}

// False: nothing of it was taken, nor kept.
bool LogWriter::put(std::string bytes) {
    std::size_t taken = 0;
    if (complete()) {
        taken = write_some(bytes);
        if (taken == bytes.size()) {
            return true;
        }
    }
    // What was begun has to be ended, whatever the room.
    if (taken == 0 && (cause_ != EAGAIN || kept_bytes_ + bytes.size() > room_)) {
        return false;
    }
    taken_of_first_ = taken > 0 ? taken : taken_of_first_;
    kept_bytes_ += bytes.size();
    kept_.push_back(std::move(bytes));
    return true;
}

// As much as is taken now; if that is not all, cause_ says why.
std::size_t LogWriter::write_some(std::string_view bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const auto taken = outlet_->write(bytes.substr(done));
        if (!taken || *taken == 0) {
            cause_ = taken ? EAGAIN : taken.error();
            break;
        }
        done += *taken;
    }
    return done;
}

// Whether nothing is kept any more. Who is only slow will take the rest; without a reader, or room on the
// disk, there is no use in keeping it.
bool LogWriter::complete() {
    while (!kept_.empty()) {
        taken_of_first_ += write_some(std::string_view{kept_.front()}.substr(taken_of_first_));
        if (taken_of_first_ < kept_.front().size()) {
            if (cause_ != EAGAIN) {
                forget_kept();
            }
            return false;
        }
        drop_first();
    }
    return true;
}

void LogWriter::drop_first() noexcept {
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
    taken_of_first_ = 0;
}

// But not the end of a line whose beginning was taken.
void LogWriter::forget_kept() noexcept {
    while (kept_.size() > (taken_of_first_ > 0 ? 1 : 0)) {
        kept_bytes_ -= kept_.back().size();
        kept_.pop_back();
        ++lost_;
    }
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
