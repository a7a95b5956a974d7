// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "children/scoreboard_map.h"
#include "pm/pool.h"
#include "pm/queue_clock.h"
#include "pm/queue_depth.h"
#include "pm/queue_fullness.h"
#include "pm/saturation.h"

namespace cede::pm {

// What is to be known of those who wait, over time: for how long, whether their queues are full, and when the
// pool is saturated. The dispatcher tells what it sees at each look. Publishes Control::listen_wait_ms.
class QueueWatch {
  public:
    using Clock = std::chrono::steady_clock;

    // Both must outlive it.
    QueueWatch(children::ScoreboardMap& scoreboard, const Pool& pool, std::size_t listeners);

    // All listen queues, in the order of the listeners, as they are now.
    void sample(std::span<const QueueDepth::Reading> queues, Clock::time_point now);
    // How many wait now, in the handoff queue too, and whether there is no free or idle child for one of
    // them.
    void judged(bool in_vain, std::uint64_t waiting, Clock::time_point now);

    // Connections that the supervisor itself has accepted.
    void took(std::uint64_t connections) noexcept { taken_ += connections; }
    // Requests that began to wait in the handoff queue.
    void handed(std::uint64_t requests) noexcept { handed_ += requests; }
    // A child has ended; its slot still says what it counted.
    void child_gone(std::uint32_t slot);

    // How long who is first in the listen queues has waited; 0: nobody waits there.
    [[nodiscard]] Clock::duration head_age(Clock::time_point now) const noexcept {
        return clock_.head_age(now);
    }
    [[nodiscard]] Clock::duration age_behind(Clock::time_point now, std::uint64_t in_front) const noexcept {
        return clock_.age_behind(now, in_front);
    }
    [[nodiscard]] QueueFullness& fullness(std::size_t listener) noexcept { return fullness_[listener]; }
    [[nodiscard]] Saturation& saturation() noexcept { return saturation_; }
    [[nodiscard]] const Saturation& saturation() const noexcept { return saturation_; }

  private:
    void count(std::uint32_t slot);

    children::ScoreboardMap& scoreboard_;
    const Pool& pool_;
    QueueClock clock_;
    Saturation saturation_;
    std::vector<QueueFullness> fullness_;
    std::vector<std::uint64_t> seen_;  // by slot: connections that its child has taken
    std::uint64_t taken_ = 0;
    std::uint64_t handed_ = 0;
};

}  // namespace cede::pm
