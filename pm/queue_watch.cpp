// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_watch.h"

#include <algorithm>
#include <limits>

namespace cede::pm {

QueueWatch::QueueWatch(children::ScoreboardMap& scoreboard, const Pool& pool, std::size_t listeners)
    : scoreboard_{scoreboard}, pool_{pool}, fullness_(listeners) {}

// What goes back, or is more than can be, is the clock's to disbelieve.
void QueueWatch::count(std::uint32_t slot) {
    const std::uint64_t claimed = scoreboard_.slot(slot).accepted.load(std::memory_order_relaxed);
    taken_ += claimed > seen_[slot] ? claimed - seen_[slot] : 0;
    seen_[slot] = claimed;
}

void QueueWatch::child_gone(std::uint32_t slot) {
    seen_.resize(std::max<std::size_t>(seen_.size(), slot + std::size_t{1}));
    count(slot);
    seen_[slot] = 0;
}

void QueueWatch::sample(std::span<const QueueDepth::Reading> queues, Clock::time_point now) {
    std::uint64_t depth = 0;
    for (std::size_t i = 0; i < queues.size(); ++i) {
        depth += queues[i].waiting;
        fullness_[i].sample(queues[i].waiting, queues[i].backlog, now);
    }
    seen_.resize(std::max<std::size_t>(seen_.size(), pool_.size()));
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        if (pool_.at(slot).phase != Pool::Phase::vacant) {
            count(slot);
        }
    }
    clock_.sample(now, taken_, depth);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.head_age(now)).count();
    scoreboard_.control().listen_wait_ms = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(age, 0, std::numeric_limits<std::uint32_t>::max()));
}

void QueueWatch::judged(bool in_vain, std::uint64_t waiting, Clock::time_point now) {
    saturation_.look({in_vain, waiting, clock_.arrivals() + handed_}, now);
}

}  // namespace cede::pm
