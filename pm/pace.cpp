// SPDX-License-Identifier: Apache-2.0
#include "pm/pace.h"

#include <algorithm>
#include <iterator>

namespace cede::pm {
namespace {

using Seconds = Pace::Seconds;

// Timers are late now and then: a window of three seconds is one of three samples.
constexpr auto slack = std::chrono::milliseconds{200};
// So much of the time that the pool did all it could.
constexpr double nearly_always = 0.9;
// Children that are in step finish all at once: counts of fewer requests say little about the rate.
constexpr double enough_for_each_child = 10;

double difference(std::uint64_t now, std::uint64_t before) {
    return static_cast<double>(now - std::min(now, before));
}

Seconds longest_between(const Counts& before, const Counts& now) {
    const Seconds ever = std::chrono::microseconds{now.longest_wait_us};
    for (std::size_t i = now.waits.size(); i-- > 0;) {
        if (now.waits[i] > before.waits[i]) {
            return i < std::size(children::wait_bounds_ms)
                       ? std::min<Seconds>(ever, std::chrono::milliseconds{children::wait_bounds_ms[i]})
                       : ever;
        }
    }
    return {};
}

}  // namespace

void Pace::sample(const Counts& totals, Clock::duration saturated, Clock::time_point now) {
    samples_.push_back({now, totals, saturated});
    while (samples_.front().at + longest_window + slack < now) {
        samples_.pop_front();
    }
}

std::optional<Pace::Recent> Pace::recent() const {
    if (samples_.size() < 2) {
        return std::nullopt;
    }
    const Sample& last = samples_.back();
    const Sample& before = samples_[samples_.size() - 2];
    const double passed = Seconds{last.at - before.at}.count();
    if (passed <= 0) {
        return std::nullopt;
    }
    Recent recent;
    recent.requests_a_second = difference(last.totals.begun, before.totals.begun) / passed;
    const double known = difference(last.totals.waits_known(), before.totals.waits_known());
    if (known > 0) {
        recent.waited_share = 1 - difference(last.totals.waits[0], before.totals.waits[0]) / known;
        recent.mean_wait = std::chrono::duration<double, std::micro>{difference(last.totals.waited_us,
                                                                                before.totals.waited_us)} /
                           known;
        recent.longest_wait = longest_between(before.totals, last.totals);
    }
    return recent;
}

std::optional<double> Pace::capacity(unsigned children) const {
    if (samples_.empty()) {
        return std::nullopt;
    }
    const Sample& last = samples_.back();
    for (auto before = samples_.rbegin(); before != samples_.rend(); ++before) {
        const double passed = Seconds{last.at - before->at}.count();
        const double served = difference(last.totals.requests, before->totals.requests);
        const bool longest = std::next(before) == samples_.rend();
        if (last.at - before->at + slack < shortest_window || (served < enough_requests && !longest)) {
            continue;
        }
        const double busy = difference(last.totals.busy_us, before->totals.busy_us) / 1e6;
        const bool saturated = Seconds{last.saturated - before->saturated}.count() >= nearly_always * passed;
        if (served <= 0) {
            return std::nullopt;
        }
        if (saturated && (busy <= 0 || served >= enough_for_each_child * children)) {
            return served / passed;
        }
        return busy > 0 ? std::optional{children * served / busy} : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace cede::pm
