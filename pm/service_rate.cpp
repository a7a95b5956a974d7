// SPDX-License-Identifier: Apache-2.0
#include "pm/service_rate.h"

#include <algorithm>

namespace cede::pm {
namespace {

constexpr double least_window_s = 2.0;
constexpr double least_measured_s = 0.5;
constexpr std::uint64_t longest_window_ns = 60'000'000'000;
constexpr double most_a_second = 1e6;  // of one child

double seconds(std::uint64_t ns) noexcept {
    return static_cast<double>(ns) * 1e-9;
}

}  // namespace

void ServiceRate::sample(std::span<const std::uint64_t> answered, std::uint64_t now_ns) {
    const bool measuring = !samples_.empty() && now_ns > samples_.back().at_ns;
    const double passed = measuring ? seconds(now_ns - samples_.back().at_ns) : 0;
    last_.resize(answered.size());
    double fresh = 0;
    for (std::size_t slot = 0; slot < answered.size(); ++slot) {
        if (answered[slot] > last_[slot]) {
            fresh += std::min(static_cast<double>(answered[slot] - last_[slot]), most_a_second * passed);
        }
        last_[slot] = answered[slot];
    }
    samples_.push_back({now_ns, samples_.empty() ? 0 : samples_.back().answered + fresh});
    while (now_ns - samples_.front().at_ns > longest_window_ns) {
        samples_.pop_front();
    }
}

std::optional<double> ServiceRate::per_second(std::size_t children) const noexcept {
    if (samples_.empty()) {
        return std::nullopt;
    }
    const Sample& last = samples_.back();
    const double enough = std::max<double>(static_cast<double>(children), 1);
    double passed = 0;
    double answered = 0;
    for (auto before = samples_.rbegin(); before != samples_.rend(); ++before) {
        passed = seconds(last.at_ns - before->at_ns);
        answered = last.answered - before->answered;
        if (passed >= least_window_s && answered >= enough) {
            break;
        }
    }
    return passed >= least_measured_s && answered >= enough ? std::optional{answered / passed} : std::nullopt;
}

}  // namespace cede::pm
