// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace cede::pm {

// When the next start may be tried after failed ones: at once after the first, for somebody may just have
// killed a young child, then later and later. Pure: the caller tells the time.
class Respawn {
  public:
    using Clock = std::chrono::steady_clock;

    // A process ended after `lived`. Whoever lived long enough, or has served, was no failed start.
    void ended(Clock::time_point now, Clock::duration lived, bool served) noexcept;
    // A start was refused before there was a process.
    void refused(Clock::time_point now) noexcept { failed(now); }
    void succeeded() noexcept { failures_ = 0; }

    // The next start is not to happen before this.
    [[nodiscard]] Clock::time_point earliest() const noexcept { return earliest_; }
    [[nodiscard]] unsigned failures() const noexcept { return failures_; }

    static constexpr Clock::duration long_enough = std::chrono::seconds{1};
    static constexpr Clock::duration first_delay = std::chrono::milliseconds{100};
    static constexpr Clock::duration longest_delay = std::chrono::milliseconds{1500};

  private:
    void failed(Clock::time_point now) noexcept;

    unsigned failures_ = 0;
    Clock::time_point earliest_{};
};

}  // namespace cede::pm
