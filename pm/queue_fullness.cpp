// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_fullness.h"

#include <algorithm>
#include <utility>

namespace cede::pm {

void QueueFullness::sample(std::uint64_t waiting, std::optional<unsigned> backlog,
                           Clock::time_point now) noexcept {
    if (full_) {
        sums_.lasted += std::max(now - at_, Clock::duration::zero());
    }
    const bool full = backlog && waiting >= std::max(*backlog, 1U);
    sums_.times += full && !full_ ? 1U : 0U;
    full_ = full;
    at_ = now;
}

std::optional<QueueFullness::Sums> QueueFullness::news(Clock::time_point now) noexcept {
    const Sums added{sums_.lasted - told_.lasted, sums_.times - told_.times};
    if (now < next_told_ || (added.times == 0 && added.lasted == Clock::duration::zero())) {
        return std::nullopt;
    }
    next_told_ = now + interval;
    told_ = sums_;
    return added;
}

}  // namespace cede::pm
