// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace cede::pm {

// How long whoever is first in the listen queues has waited, which the kernel does not say of a Unix socket.
// From samples of how many connections were taken from the queues so far and how many stand there: arrivals
// are what was taken and what stands, and who is first came when the arrivals first reached one more than
// what is taken by now. Pure: the caller tells the time. Bounded memory.
//
// What was taken is counted by children, in memory that they can write. A count that goes back or jumps by
// more than can be is not believed; the worst that a child can do is to make waiters look younger. Errors are
// on that side, too: at the most one interval between samples, or one hundredth of the longest wait.
class QueueClock {
  public:
    using Clock = std::chrono::steady_clock;

    // `taken` since any beginning; `depth` now. To be fed whenever somebody looks, with times in order.
    void sample(Clock::time_point now, std::uint64_t taken, std::uint64_t depth);

    // 0: nobody waits, by the latest sample.
    [[nodiscard]] Clock::duration head_age(Clock::time_point now) const noexcept;

    // The same of who has so many in front; 0: nobody.
    [[nodiscard]] Clock::duration age_behind(Clock::time_point now, std::uint64_t in_front) const noexcept;

    // How many have come so far, from any beginning. Never goes back.
    [[nodiscard]] std::uint64_t arrivals() const noexcept { return arrived_; }

    static constexpr std::size_t most_samples = 1024;
    // What is believed of `taken` between two samples.
    static constexpr std::uint64_t most_at_once = 10'000;
    static constexpr std::uint64_t most_a_millisecond = 1'000;

  private:
    struct Sample {
        Clock::time_point at;
        std::uint64_t arrived;
    };
    [[nodiscard]] std::uint64_t newly_taken(Clock::time_point now, std::uint64_t taken,
                                            std::uint64_t depth) noexcept;
    void push(Sample sample);
    void thin_out();

    std::deque<Sample> samples_;  // of those who still wait; both members grow from front to back
    Clock::duration spacing_{};   // between every second sample, at least
    bool begun_ = false;
    Clock::time_point at_{};  // the latest sample
    std::uint64_t claimed_ = 0;
    std::uint64_t depth_ = 0;
    std::uint64_t owed_ = 0;   // seen to be taken before it was counted
    std::uint64_t taken_ = 0;  // as believed
    std::uint64_t arrived_ = 0;
};

}  // namespace cede::pm
