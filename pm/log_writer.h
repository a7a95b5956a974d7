// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "pm/error.h"
#include "pm/log_outlet.h"

namespace cede::pm {

// Lines into an outlet: whole ones, in order, never waiting. A line for which there is no room is lost and
// counted, and the next one that can be written is preceded by the count.
class LogWriter {
  public:
    using Clock = std::chrono::steady_clock;

    static constexpr auto check_interval = std::chrono::seconds{1};

    LogWriter(std::unique_ptr<LogOutlet> outlet, LogFormat format) noexcept;

    // Looks before, once in check_interval, whether the file has been moved away, and then opens it anew.
    // `author`: as for render().
    void write(LogLevel level, std::string_view text, Clock::time_point now, std::string_view author = {});

    // Completes what was begun and says how many lines were lost, as far as there is room.
    void tend();

    // Opens the file anew. The error says what is wrong; the old file is then kept, and the log says so, too.
    [[nodiscard]] std::expected<void, Error> reopen();

    // How many lines have been lost in all, told or not.
    [[nodiscard]] std::uint64_t lost() const noexcept { return told_ + lost_; }

    [[nodiscard]] const LogOutlet& outlet() const noexcept { return *outlet_; }

  private:
    void look_for_file(Clock::time_point now);
    [[nodiscard]] int open_anew();
    void put_line(LogLevel level, std::string_view text, std::string_view author = {});
    [[nodiscard]] bool put(std::string bytes);
    [[nodiscard]] bool complete();
    [[nodiscard]] bool confess();

    std::unique_ptr<LogOutlet> outlet_;
    LogStyle style_;
    std::string rest_;        // of a line that was taken in part
    std::uint64_t lost_ = 0;  // and not told yet
    std::uint64_t told_ = 0;
    int cause_ = 0;  // errno of the last loss
    Clock::time_point next_look_{};
    bool reopening_failed_ = false;  // and it was said
};

}  // namespace cede::pm
