// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cede::pm {

// So many bytes, or lines, in a second, and `burst` at once after a time with none. Pure: the time is given.
class Rate {
  public:
    using Clock = std::chrono::steady_clock;

    Rate(std::uint64_t per_second, std::uint64_t burst) noexcept
        : per_second_{static_cast<double>(per_second)}, burst_{static_cast<double>(burst)}, left_{burst_} {}

    // False: that would be too much, and nothing was taken. More than `burst` at once always is.
    [[nodiscard]] bool take(std::uint64_t amount, Clock::time_point now) noexcept {
        const std::chrono::duration<double> passed = std::max(now - at_, Clock::duration::zero());
        left_ = std::min(burst_, left_ + passed.count() * per_second_);
        at_ = now;
        if (static_cast<double>(amount) > left_) {
            return false;
        }
        left_ -= static_cast<double>(amount);
        return true;
    }

  private:
    double per_second_;
    double burst_;
    double left_;
    Clock::time_point at_{};
};

}  // namespace cede::pm
