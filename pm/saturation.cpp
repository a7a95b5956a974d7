// SPDX-License-Identifier: Apache-2.0
#include "pm/saturation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {
namespace {

using Why = Saturation::Why;

std::string describe(Why why, unsigned children) {
    switch (why) {
        case Why::all_busy:
            return fmt::format("all {} children are busy (--children)", children);
        case Why::at_limit:
            return fmt::format("all {} children are busy, and there may be no more (--children)", children);
        case Why::starting:
            return fmt::format("the {} children are busy, and more are being started", children);
        case Why::failing:
            return fmt::format("the {} children are busy, and no more can be started; see the errors",
                               children);
        case Why::no_zygote:
            break;
    }
    return "PHP is being started";
}

LogLevel level_of(Why why) noexcept {
    return why == Why::starting || why == Why::no_zygote ? LogLevel::notice : LogLevel::warning;
}

double seconds(Saturation::Clock::duration duration) {
    return std::chrono::duration<double>{duration}.count();
}

std::string counted(std::uint64_t requests) {
    return fmt::format("{} {}", requests, requests == 1 ? "request" : "requests");
}

}  // namespace

void Saturation::look(const Look& look, Clock::time_point now) {
    if (!look.in_vain) {
        if (event_ && (!event_->real || now - event_->last >= calm)) {
            end();
        }
        return;
    }
    if (!event_) {
        event_.emplace();
        event_->begun = now;
    }
    event_->last = now;
    if (now - event_->begun < shortest) {
        return;  // children may be about to take some of them, or have not counted yet that they have
    }
    event_->most = std::max(event_->most, look.waiting);
    if (!std::exchange(event_->real, true)) {
        event_->arrived_before = look.arrived - std::min(look.arrived, look.waiting);
    }
    event_->waited = std::max(event_->waited, look.arrived - std::min(look.arrived, event_->arrived_before));
}

void Saturation::end() {
    const Event event = *std::exchange(event_, std::nullopt);
    if (!event.real) {
        ++sums_.moments;
        return;
    }
    const auto lasted = event.last - event.begun;
    ++sums_.times;
    sums_.lasted += std::chrono::round<std::chrono::milliseconds>(lasted);
    sums_.waited += event.waited;
    if (event.told) {
        ended_.push_back({level_of(event.why),
                          fmt::format("requests wait no more, after {:.2f} s: {} had to, at the most {} at "
                                      "once, because {}",
                                      seconds(lasted), counted(event.waited), event.most,
                                      describe(event.why, event.children))});
        return;
    }
    if (left_out_.times == 0) {
        left_out_.since = event.begun;
    }
    ++left_out_.times;
    left_out_.waited += event.waited;
    left_out_.longest = std::max(left_out_.longest, lasted);
}

Saturation::Line Saturation::sum_up(Clock::time_point now) {
    const LeftOut sum = std::exchange(left_out_, {});
    return {
        LogLevel::warning,
        fmt::format("requests had to wait {} more {} in the last {:.0f} s: {}, for {:.2f} s at the longest",
                    sum.times, sum.times == 1 ? "time" : "times", seconds(now - sum.since),
                    counted(sum.waited), seconds(sum.longest))};
}

std::vector<Saturation::Line> Saturation::tell(Why why, unsigned children, Clock::time_point now) {
    std::vector<Line> lines = std::exchange(ended_, {});
    const bool begins = event_ && event_->real && !event_->told;
    if (event_ && event_->real) {
        event_->why = why;
        event_->children = children;
    }
    if (now < next_told_ || (!begins && left_out_.times == 0)) {
        return lines;
    }
    next_told_ = now + fold;
    if (left_out_.times > 0) {
        lines.push_back(sum_up(now));
    }
    if (begins) {
        event_->told = true;
        lines.push_back({level_of(why), fmt::format("requests have to wait, {} by now: {}", event_->waited,
                                                    describe(why, children))});
    }
    return lines;
}

Saturation::Clock::time_point Saturation::due() const noexcept {
    if (event_) {
        return event_->last + calm;
    }
    if (!ended_.empty()) {
        return {};  // at once
    }
    return left_out_.times > 0 ? next_told_ : Clock::time_point::max();
}

Saturation::Sums Saturation::sums() const noexcept {
    Sums sums = sums_;
    if (event_ && event_->real) {
        ++sums.times;
        sums.lasted += std::chrono::round<std::chrono::milliseconds>(event_->last - event_->begun);
        sums.waited += event_->waited;
    }
    return sums;
}

std::optional<Saturation::Clock::time_point> Saturation::since() const noexcept {
    return event_ && event_->real ? std::optional{event_->begun} : std::nullopt;
}

}  // namespace cede::pm
