// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pm/config.h"

namespace cede::pm {

// When requests have to wait, told from one look to the next: that they begin to, and that they don't any
// more, with how long, how many, and why. Somebody who waits for less than 50 ms is no event:
// that happens all the time where connections are kept open. Of events in quick succession the first is told,
// then one each 10 seconds with the sum of those between. Pure: the caller tells the time.
class Saturation {
  public:
    using Clock = std::chrono::steady_clock;

    enum class Why : std::uint8_t {
        all_busy,   // and there are as many as there are to be
        at_limit,   // all busy, and there may be no more
        starting,   // children are on their way
        failing,    // children can't be started
        no_zygote,  // PHP itself is being started
    };
    struct Look {
        bool in_vain = false;       // somebody waits for whom there is no free or idle child
        std::uint64_t waiting = 0;  // all who do
        std::uint64_t arrived = 0;  // how many have come to wait so far; does not go back
    };
    struct Line {
        LogLevel level;
        std::string text;
    };
    struct Sums {
        std::chrono::milliseconds lasted{0};
        std::uint64_t times = 0;
        std::uint64_t waited = 0;   // requests
        std::uint64_t moments = 0;  // that were too short to be an event
    };

    // Often: each 10 ms while somebody waits in vain.
    void look(const Look& look, Clock::time_point now);

    // What to log now. `why`, and how many children there are, if somebody waits in vain now.
    [[nodiscard]] std::vector<Line> tell(Why why, unsigned children, Clock::time_point now);
    // When tell() has something to say although nobody has looked; max(): never.
    [[nodiscard]] Clock::time_point due() const noexcept;

    // With what is not over yet.
    [[nodiscard]] Sums sums() const noexcept;
    // Since when requests have to wait, if they do.
    [[nodiscard]] std::optional<Clock::time_point> since() const noexcept;

    static constexpr auto shortest = std::chrono::milliseconds{50};
    static constexpr auto calm = std::chrono::milliseconds{100};  // without, it is over
    static constexpr auto fold = std::chrono::seconds{10};

  private:
    struct Event {
        Clock::time_point begun{};
        Clock::time_point last{};  // look that found somebody
        std::uint64_t arrived_before = 0;
        std::uint64_t waited = 0;
        std::uint64_t most = 0;  // at once
        bool real = false;       // not just a moment
        bool told = false;
        Why why = Why::all_busy;
        unsigned children = 0;
    };
    struct LeftOut {
        std::uint64_t times = 0;
        std::uint64_t waited = 0;
        Clock::duration longest{};
        Clock::time_point since{};
    };
    void end();
    [[nodiscard]] Line sum_up(Clock::time_point now);

    std::optional<Event> event_;
    std::vector<Line> ended_;  // lines for events that are over
    LeftOut left_out_;
    Clock::time_point next_told_{};
    Sums sums_;
};

}  // namespace cede::pm
