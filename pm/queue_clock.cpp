// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_clock.h"

#include <algorithm>

namespace cede::pm {

// A queue gets shorter only by being taken from: that much is known, whatever is counted. Who has taken a
// connection counts it a moment later, so what was seen in this way is not believed a second time.
std::uint64_t QueueClock::newly_taken(Clock::time_point now, std::uint64_t taken,
                                      std::uint64_t depth) noexcept {
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - at_).count();
    const std::uint64_t most =
        most_at_once +
        most_a_millisecond * static_cast<std::uint64_t>(std::clamp<std::int64_t>(
                                 passed, 0, std::chrono::milliseconds{std::chrono::hours{1}}.count()));
    std::uint64_t counted = begun_ && taken >= claimed_ ? taken - claimed_ : 0;
    counted = std::min(counted, most);
    counted -= std::min(counted, owed_);
    const std::uint64_t seen = depth_ - std::min(depth_, depth);
    owed_ = seen - std::min(seen, counted);
    return std::max(counted, seen);
}

void QueueClock::sample(Clock::time_point now, std::uint64_t taken, std::uint64_t depth) {
    taken_ += newly_taken(now, taken, depth);
    begun_ = true;
    at_ = now;
    claimed_ = taken;
    depth_ = depth;
    const std::uint64_t arrived = taken_ + depth;
    arrived_ = std::max(arrived_, arrived);
    // Whoever was taken between the two questions was counted twice: it can't have been more before.
    while (!samples_.empty() && samples_.back().arrived > arrived) {
        const Sample last = samples_.back();
        samples_.pop_back();
        if (samples_.empty() || samples_.back().arrived < arrived) {
            samples_.push_back({last.at, arrived});
        }
    }
    while (!samples_.empty() && samples_.front().arrived <= taken_) {
        samples_.pop_front();
    }
    if (samples_.empty()) {
        spacing_ = {};
    }
    if (arrived > taken_ && (samples_.empty() || samples_.back().arrived < arrived)) {
        push({now, arrived});
    }
}

void QueueClock::push(Sample sample) {
    const bool close = samples_.size() >= 2 && sample.at - samples_[samples_.size() - 2].at < spacing_;
    if (close || (!samples_.empty() && sample.at <= samples_.back().at)) {
        samples_.back().arrived = sample.arrived;
        samples_.back().at = std::max(samples_.back().at, sample.at);
        return;
    }
    if (samples_.size() == most_samples) {
        thin_out();
    }
    samples_.push_back(sample);
}

// Of those that are close together the latest stays, which makes nobody look older.
void QueueClock::thin_out() {
    while (samples_.size() > most_samples / 2) {
        const auto span = samples_.back().at - samples_.front().at;
        spacing_ = std::max(2 * spacing_, span / static_cast<int>(most_samples / 4));
        std::deque<Sample> kept;
        for (const Sample& sample : samples_) {
            if (kept.size() >= 2 && sample.at - kept[kept.size() - 2].at < spacing_) {
                kept.back() = sample;
            } else {
                kept.push_back(sample);
            }
        }
        samples_ = std::move(kept);
    }
}

QueueClock::Clock::duration QueueClock::head_age(Clock::time_point now) const noexcept {
    return age_behind(now, 0);
}

QueueClock::Clock::duration QueueClock::age_behind(Clock::time_point now,
                                                   std::uint64_t in_front) const noexcept {
    const auto first = std::ranges::upper_bound(samples_, taken_ + in_front, {}, &Sample::arrived);
    return first == samples_.end() ? Clock::duration::zero()
                                   : std::max(now - first->at, Clock::duration::zero());
}

}  // namespace cede::pm
