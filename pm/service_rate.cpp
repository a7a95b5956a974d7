// SPDX-License-Identifier: Apache-2.0
#include "pm/service_rate.h"

#include <algorithm>
#include <cmath>

namespace cede::pm {
namespace {

constexpr double window_s = 2.0;
constexpr double least_measured_s = 0.5;
constexpr double most_a_second = 1e6;  // of one child

}  // namespace

void ServiceRate::sample(std::span<const std::uint64_t> answered, std::uint64_t now_ns) {
    const bool measuring = sampled_at_ns_ != 0 && now_ns > sampled_at_ns_;
    const double passed = measuring ? static_cast<double>(now_ns - sampled_at_ns_) * 1e-9 : 0;
    last_.resize(answered.size());
    double fresh = 0;
    for (std::size_t slot = 0; slot < answered.size(); ++slot) {
        if (answered[slot] > last_[slot]) {
            fresh += std::min(static_cast<double>(answered[slot] - last_[slot]), most_a_second * passed);
        }
        last_[slot] = answered[slot];
    }
    sampled_at_ns_ = now_ns;
    if (!measuring) {
        return;
    }
    // A true average at first, and then one in which what is older weighs less and less.
    measured_s_ += passed;
    const double weight = std::max(1 - std::exp(-passed / window_s), passed / measured_s_);
    rate_ += (fresh / passed - rate_) * std::min(weight, 1.0);
}

std::optional<double> ServiceRate::per_second() const noexcept {
    return measured_s_ >= least_measured_s ? std::optional{rate_} : std::nullopt;
}

}  // namespace cede::pm
