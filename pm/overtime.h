// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <sys/types.h>
#include <vector>

namespace cede::pm {

// Whose request runs for too long. Pure: the caller tells the time, and what the children do. A request is
// known from the first check that finds it, so that it gets up to two intervals more than its limit.
class Overtime {
  public:
    using Clock = std::chrono::steady_clock;

    struct View {
        pid_t pid = 0;  // 0: nobody
        bool busy = false;
        std::uint64_t requests = 0;  // how many this child has begun
    };
    enum class How : std::uint8_t {
        ask,    // children::overtime_signal
        force,  // SIGKILL
    };
    struct Ending {
        std::uint32_t slot;
        How how;
    };

    // 0: no limit, and nothing to check.
    explicit Overtime(Clock::duration limit) : limit_{limit} {}

    // From now on, also for requests that run.
    void set_limit(Clock::duration limit) noexcept { limit_ = limit; }

    // When the next check is due; never without a limit.
    [[nodiscard]] Clock::time_point due() const noexcept {
        return limit_ > Clock::duration::zero() ? due_ : Clock::time_point::max();
    }

    // Whom to end now; `slots` always has the same size. Each request is named once as `ask` and, if it still
    // runs after `patience`, once as `force`. A child that is not busy is never named.
    std::vector<Ending> check(std::span<const View> slots, Clock::time_point now);

    static constexpr Clock::duration interval = std::chrono::seconds{1};
    static constexpr Clock::duration patience = std::chrono::seconds{5};

  private:
    struct Request {
        View child;
        enum class Stage : std::uint8_t { running, asked, forced } stage = Stage::running;
        Clock::time_point since{};  // first seen, or asked
    };

    Clock::duration limit_;
    Clock::time_point due_ = Clock::time_point::min();
    std::vector<Request> requests_;  // by slot
};

}  // namespace cede::pm
