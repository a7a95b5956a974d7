// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "children/clock.h"

namespace cede::agent {

// A time that is over some day, or never (0 milliseconds). It begins when it is made.
class TimeLimit {
  public:
    explicit TimeLimit(std::uint64_t ms) noexcept : TimeLimit{ms, ms == 0 ? 0 : children::monotonic_ns()} {}
    // Began at this time (CLOCK_MONOTONIC).
    TimeLimit(std::uint64_t ms, std::uint64_t begun_ns) noexcept
        : deadline_ns_{ms == 0 ? 0 : begun_ns + ms * ns_in_ms} {}

    // For poll(2): -1 without a limit, 0 once it is over.
    [[nodiscard]] int left_ms() const noexcept {
        if (deadline_ns_ == 0) {
            return -1;
        }
        const std::uint64_t now = children::monotonic_ns();
        return now < deadline_ns_ ? static_cast<int>((deadline_ns_ - now) / ns_in_ms) + 1 : 0;
    }

  private:
    static constexpr std::uint64_t ns_in_ms = 1'000'000;
    std::uint64_t deadline_ns_;
};

}  // namespace cede::agent
