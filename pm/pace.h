// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "pm/totals.h"

namespace cede::pm {

// How fast a pool works, from its totals of each second. Pure: the caller tells the time.
class Pace {
  public:
    using Clock = std::chrono::steady_clock;
    using Seconds = std::chrono::duration<double>;

    // To be fed once a second. `saturated`: for how long in all requests have had to wait so far.
    void sample(const Counts& totals, Clock::duration saturated, Clock::time_point now);

    // Between the last two samples.
    struct Recent {
        double requests_a_second = 0;  // begun
        double waited_share = 0;       // of those: for more than the first bucket's bound, a millisecond
        Seconds mean_wait{};
        Seconds longest_wait{};  // no longer than this: a bound of a bucket, or the longest ever
    };
    [[nodiscard]] std::optional<Recent> recent() const;

    // How many requests a second `children` can serve at the most: while they are all busy, what they do
    // serve; else what follows from the mean time for one. Over the last 3 seconds; over up to 15 if there
    // were only few requests. Nothing while nothing is known.
    [[nodiscard]] std::optional<double> capacity(unsigned children) const;

    static constexpr auto shortest_window = std::chrono::seconds{3};
    static constexpr auto longest_window = std::chrono::seconds{15};
    static constexpr std::uint64_t enough_requests = 20;

  private:
    struct Sample {
        Clock::time_point at;
        Counts totals;
        Clock::duration saturated;
    };
    std::deque<Sample> samples_;  // the oldest first
};

}  // namespace cede::pm
