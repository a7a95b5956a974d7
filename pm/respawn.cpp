// SPDX-License-Identifier: Apache-2.0
#include "pm/respawn.h"

#include <algorithm>

namespace cede::pm {

void Respawn::ended(Clock::time_point now, Clock::duration lived, bool served) noexcept {
    if (served || lived >= long_enough) {
        failures_ = 0;
    } else {
        failed(now);
    }
}

void Respawn::failed(Clock::time_point now) noexcept {
    constexpr unsigned enough_doublings = 6;  // 100 ms doubled six times is above the longest delay
    earliest_ = now;
    if (failures_ > 0) {
        const Clock::duration delay = first_delay * (1U << std::min(failures_ - 1, enough_doublings));
        earliest_ += std::min(delay, longest_delay);
    }
    ++failures_;
}

}  // namespace cede::pm
