// SPDX-License-Identifier: Apache-2.0
#include "pm/sizing.h"

#include <algorithm>
#include <limits>

namespace cede::pm {

unsigned Sizing::peak(unsigned demand, Clock::time_point now) {
    while (!samples_.empty() && samples_.front().at + sizes_.window < now) {
        samples_.pop_front();
    }
    while (!samples_.empty() && samples_.back().demand <= demand) {
        samples_.pop_back();
    }
    samples_.push_back({now, demand});
    return samples_.front().demand;
}

// A bucket that holds one second's worth, and is full at the start.
unsigned Sizing::allowed_starts(Clock::time_point now) {
    const double rate = sizes_.starts_a_second;
    const std::chrono::duration<double> passed = now - tokens_at_;
    tokens_ = tokens_at_ == Clock::time_point{} ? rate : std::min(rate, tokens_ + passed.count() * rate);
    tokens_at_ = now;
    return static_cast<unsigned>(tokens_);
}

Sizing::Change Sizing::decide(const Headcount& count, Clock::time_point now) {
    const unsigned present = count.starting + count.spare + count.busy + count.reserved;
    const unsigned room = sizes_.most - std::min(sizes_.most, present + count.leaving);
    const unsigned places =
        std::min(room, sizes_.most_starting - std::min(sizes_.most_starting, count.starting));
    present_ = present;
    if (present > sizes_.most) {
        return {0, std::min(present - sizes_.most, count.spare)};
    }
    if (sizes_.mode == PoolMode::fixed) {
        return {places, 0};
    }
    const auto waiting = static_cast<unsigned>(
        std::min<std::uint64_t>(count.waiting, std::numeric_limits<unsigned>::max() / 4));
    const unsigned demand = std::min(count.busy + waiting + sizes_.reserved, sizes_.most);
    const unsigned needed = peak(demand, now);
    if (!begun_) {
        const unsigned missing =
            std::max(sizes_.at_start, demand) - std::min(std::max(sizes_.at_start, demand), present);
        begun_ = missing <= places;
        return {std::min(missing, places), 0};
    }
    const unsigned reserved = std::min(sizes_.reserved, count.reserved + count.starting);
    const unsigned wanted =
        std::min(std::max(demand + sizes_.least_spare, present + sizes_.reserved - reserved), sizes_.most);
    if (present < wanted) {
        // Whoever waits gets a child at once; the rate is for the spare ones.
        const unsigned for_waiters = std::max(demand - std::min(demand, present), sizes_.reserved - reserved);
        const unsigned start =
            std::min({wanted - present, places, std::max(for_waiters, allowed_starts(now))});
        tokens_ = std::max(0.0, tokens_ - start);
        return {start, 0};
    }
    const unsigned kept = std::max(needed + sizes_.most_spare, sizes_.least_spare);
    if (present <= kept || now < next_retire_) {
        return {};
    }
    next_retire_ = now + retire_interval;
    return {0, std::min((present - kept + 3) / 4, count.spare)};
}

Sizing::Clock::time_point Sizing::due(Clock::time_point now) const noexcept {
    const bool may_shrink =
        present_ > (sizes_.mode == PoolMode::fixed ? sizes_.most : sizes_.least_spare + sizes_.reserved);
    return may_shrink ? now + sample_interval : Clock::time_point::max();
}

}  // namespace cede::pm
