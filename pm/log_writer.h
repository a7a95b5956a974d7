// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "pm/error.h"
#include "pm/log_outlet.h"

namespace cede::pm {

// Lines into an outlet: whole ones, in order, never waiting. What a reader does not take at once is kept
// until it does, as far as there is room for it here. A line for which there is none is lost and counted, and
// the next one that can be written is preceded by the count.
class LogWriter {
  public:
    using Clock = std::chrono::steady_clock;

    static constexpr auto check_interval = std::chrono::seconds{1};

    static constexpr std::size_t usual_room = 1024 * 1024;

    // `room`: bytes that are kept at the most.
    LogWriter(std::unique_ptr<LogOutlet> outlet, LogFormat format, std::size_t room = usual_room) noexcept;

    // Looks before, once in check_interval, whether the file has been moved away, and then opens it anew.
    // `author`, `left_out`: as for render().
    void write(LogLevel level, std::string_view text, Clock::time_point now, std::string_view author = {},
               std::uint64_t left_out = 0);

    // Writes what was kept and says how many lines were lost, as far as it is taken.
    void tend();

    // Something is kept.
    [[nodiscard]] bool waits() const noexcept { return !kept_.empty(); }

    // Opens the file anew. The error says what is wrong; the old file is then kept, and the log says so, too.
    [[nodiscard]] std::expected<void, Error> reopen();

    // How many lines have been lost in all, told or not.
    [[nodiscard]] std::uint64_t lost() const noexcept { return told_ + lost_; }

    [[nodiscard]] const LogOutlet& outlet() const noexcept { return *outlet_; }

  private:
    void look_for_file(Clock::time_point now);
    [[nodiscard]] int open_anew();
    void put_line(LogLevel level, std::string_view text, std::string_view author = {},
                  std::uint64_t left_out = 0);
    [[nodiscard]] bool put(std::string bytes);
    [[nodiscard]] bool complete();
    [[nodiscard]] std::size_t write_some(std::string_view bytes);
    void drop_first() noexcept;
    void forget_kept() noexcept;
    [[nodiscard]] bool confess();

    std::unique_ptr<LogOutlet> outlet_;
    LogStyle style_;
    std::uint64_t lost_ = 0;  // and not told yet
    std::uint64_t told_ = 0;
    std::size_t room_;
    std::deque<std::string> kept_;  // whole lines, but for what is taken of the first
    std::size_t kept_bytes_ = 0;    // of all that
    std::size_t taken_of_first_ = 0;
    int cause_ = 0;  // errno of the last loss
    Clock::time_point next_look_{};
    bool reopening_failed_ = false;  // and it was said
};

}  // namespace cede::pm
