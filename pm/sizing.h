// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace cede::pm {

// `pm` of php-fpm: when children are started and when they are let go.
enum class PoolMode : std::uint8_t {
    fixed,     // static: always as many as allowed
    dynamic,   // some spare ones are kept
    ondemand,  // as many as there is work for
};

struct Sizes {
    PoolMode mode = PoolMode::fixed;
    unsigned most = 5;
    unsigned at_start = 5;
    unsigned least_spare = 0;
    unsigned most_spare = 0;
    unsigned starts_a_second = 32;             // of spare ones
    std::chrono::milliseconds window{10'000};  // how long what was needed is remembered
    unsigned most_starting = 32;               // at once
    unsigned reserved = 0;                     // kept besides all others
};

// Who is there. A connected child that has nothing to do is spare as a free one is: it gives its connection
// up when somebody waits. A parked connection is no child's business.
struct Headcount {
    unsigned starting = 0;
    unsigned spare = 0;     // free, idle, or giving up
    unsigned busy = 0;      // everything else that serves
    unsigned leaving = 0;   // told to end: serves nobody, still takes its place
    unsigned reserved = 0;  // for new connections only, whatever they do: none of spare and busy
    std::uint64_t waiting = 0;
};

// How many children to start, and how many to let go. Pure: the caller tells the time and counts.
class Sizing {
  public:
    using Clock = std::chrono::steady_clock;

    explicit Sizing(const Sizes& sizes) : sizes_{sizes} {}

    // From now on; what was needed lately is remembered.
    void set(const Sizes& sizes) noexcept { sizes_ = sizes; }

    struct Change {
        unsigned start = 0;
        unsigned retire = 0;
        bool operator==(const Change&) const = default;
    };
    // There were children before: those wanted at the start are not started again.
    void resume() noexcept { begun_ = true; }

    // To be asked whenever the count or the number of waiters may have changed, and when due() is reached.
    // Starts as many as there are waiters nobody is left for, and what is missing of spare ones; lets go, a
    // quarter a second, what the window's peak and the spare ones allowed do not need, and at once what is
    // above the limit. Never both.
    [[nodiscard]] Change decide(const Headcount& count, Clock::time_point now);

    // When to ask next although nothing has happened. Never in a fixed pool that is not too large.
    [[nodiscard]] Clock::time_point due(Clock::time_point now) const noexcept;

    [[nodiscard]] const Sizes& sizes() const noexcept { return sizes_; }

    static constexpr Clock::duration sample_interval = std::chrono::milliseconds{100};
    static constexpr Clock::duration retire_interval = std::chrono::seconds{1};

  private:
    struct Sample {
        Clock::time_point at;
        unsigned demand;
    };
    [[nodiscard]] unsigned peak(unsigned demand, Clock::time_point now);
    [[nodiscard]] unsigned allowed_starts(Clock::time_point now);

    Sizes sizes_;
    bool begun_ = false;          // as many as wanted at the start have been ordered
    std::deque<Sample> samples_;  // demands fall from front to back
    double tokens_ = 0;
    Clock::time_point tokens_at_{};
    Clock::time_point next_retire_{};
    unsigned present_ = 0;
};

}  // namespace cede::pm
