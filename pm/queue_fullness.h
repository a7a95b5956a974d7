// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace cede::pm {

// How long and how often a listen queue has been full, from samples. The kernel refuses nobody before there
// is one more than the backlog (unix_recvq_full() and sk_acceptq_is_full() in Linux), but whoever is taken is
// replaced at once then: at the backlog it counts as full. Pure: the caller tells the time.
class QueueFullness {
  public:
    using Clock = std::chrono::steady_clock;

    struct Sums {
        Clock::duration lasted{};
        std::uint64_t times = 0;
    };

    // `backlog` as the kernel granted it; not known: never full.
    void sample(std::uint64_t waiting, std::optional<unsigned> backlog, Clock::time_point now) noexcept;

    [[nodiscard]] const Sums& sums() const noexcept { return sums_; }

    // What has been added since the last time that this was asked and had an answer, if that is `interval`
    // ago and there is any.
    [[nodiscard]] std::optional<Sums> news(Clock::time_point now) noexcept;

    static constexpr auto interval = std::chrono::seconds{10};

  private:
    bool full_ = false;
    Clock::time_point at_{};
    Sums sums_;
    Sums told_;
    Clock::time_point next_told_{};
};

}  // namespace cede::pm
