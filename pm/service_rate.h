// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cede::pm {

// How many requests a second children answer while there are more than they can take: a moving average over
// some seconds. Pure: the time is given. The counters are the children's to write: none counts for more than
// a child can do.
class ServiceRate {
  public:
    // How often to sample.
    static constexpr std::chrono::milliseconds interval{50};

    // Their counters, by slot; what a new child in a slot has not counted, it does not lose. Under pressure
    // only: a time without begins the next measure.
    void sample(std::span<const std::uint64_t> answered, std::uint64_t now_ns);
    // What comes next is not to be measured together with what was.
    void pause() noexcept { sampled_at_ns_ = 0; }

    // Nothing before there has been half a second of pressure.
    [[nodiscard]] std::optional<double> per_second() const noexcept;

  private:
    std::vector<std::uint64_t> last_;
    std::uint64_t sampled_at_ns_ = 0;
    double rate_ = 0;
    double measured_s_ = 0;
};

}  // namespace cede::pm
