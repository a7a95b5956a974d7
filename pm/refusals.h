// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/detect.h"
#include "protocol/outcome.h"

namespace cede::pm {

// Makes at most one line a second of requests that were refused because they broke the protocol.
class Refusals {
  public:
    using Clock = std::chrono::steady_clock;

    // A child reports one. `total`: what the counters of all children add up to now. The line for the log;
    // empty: too soon, the next line counts it.
    [[nodiscard]] std::string report(Clock::time_point now, std::string_view child, protocol::Outcome why,
                                     protocol::Protocol spoken, protocol::Protocol ours, std::uint64_t total);

  private:
    Clock::time_point next_line_{};
    std::uint64_t told_ = 0;
};

}  // namespace cede::pm
