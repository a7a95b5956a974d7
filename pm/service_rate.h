// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace cede::pm {

// How many requests a second children answer while there are more than they can take: by as many as each of
// them has answered at the latest, and by two seconds at the least. Pure: the time is given. The counters are
// the children's to write: none counts for more than a child can do.
class ServiceRate {
  public:
    // How often to sample.
    static constexpr std::chrono::milliseconds interval{50};

    // Their counters, by slot; what a new child in a slot has not counted, it does not lose. Under pressure
    // only: a time without begins the next measure.
    void sample(std::span<const std::uint64_t> answered, std::uint64_t now_ns);
    // What comes next is not to be measured together with what was.
    void pause() noexcept { samples_.clear(); }

    // Nothing before there has been half a second of pressure, or before so many children as there are have
    // answered as many requests.
    [[nodiscard]] std::optional<double> per_second(std::size_t children) const noexcept;

  private:
    std::vector<std::uint64_t> last_;
    struct Sample {
        std::uint64_t at_ns = 0;
        double answered = 0;
    };
    std::deque<Sample> samples_;  // of the latest minute
};

}  // namespace cede::pm
