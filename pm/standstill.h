// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace cede::pm {

// Whether the pool has come to a stop as a whole: for so long somebody waits, no child has time, and no
// request is begun or ended. One process that died with a lock of shared memory (opcache's) does that to all
// others (F109). Pure: the caller tells the time, and what there is.
class Standstill {
  public:
    using Clock = std::chrono::steady_clock;

    struct View {
        bool waiting = false;        // somebody waits for a child
        bool all_busy = false;       // every child has a request, and no other child is being started
        std::uint64_t requests = 0;  // how many were begun and ended; another sum is a sign of life
    };

    // True when it has lasted for `limit`, and again only after another `limit`. 0: never.
    [[nodiscard]] bool check(const View& view, Clock::duration limit, Clock::time_point now) noexcept;

    static constexpr Clock::duration interval = std::chrono::seconds{1};

  private:
    std::uint64_t requests_ = 0;
    Clock::time_point since_{};  // the latest sign of life
};

}  // namespace cede::pm
