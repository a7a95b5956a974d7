// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_policy.h"

#include <algorithm>
#include <limits>

namespace cede::pm {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds longest_patience = std::chrono::milliseconds{100};
constexpr nanoseconds shortest_standing = std::chrono::seconds{1};
constexpr double seconds_between_looks = 0.02;

std::uint64_t count_of(nanoseconds time) noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
}

}  // namespace

bool accept_now(const QueueRules& rules, const ListenQueue& queue) noexcept {
    if (!queue.pressure || queue.closed || queue.head_age.count() <= 0) {
        return false;
    }
    if (rules.reserve) {
        return queue.head_age > longest_patience;  // whom those children do not take in time either
    }
    if (rules.answers_pings || rules.overload == Overload::reject) {
        return true;
    }
    if (rules.max_wait.count() == 0) {
        return queue.head_age > longest_patience;
    }
    // Where some wait in order, the others belong into the same order.
    return queue.others_wait || queue.head_age > std::min(longest_patience, rules.max_wait / 4);
}

Judgement judge(const QueueRules& rules, std::span<const std::uint64_t> since_ns,
                std::uint64_t last_overdue_ns, std::uint64_t now_ns) noexcept {
    Judgement judgement;
    const std::uint64_t limit = count_of(rules.max_wait);
    if (limit == 0) {
        return judgement;
    }
    const auto young = std::ranges::find_if(
        since_ns, [&](std::uint64_t since) { return since >= now_ns || now_ns - since < limit; });
    judgement.overdue = static_cast<std::size_t>(young - since_ns.begin());
    const std::uint64_t memory = count_of(std::max(rules.max_wait, shortest_standing));
    const bool lately =
        last_overdue_ns > 0 && (now_ns < last_overdue_ns || now_ns - last_overdue_ns < memory);
    judgement.newest_first = rules.overload == Overload::lifo && (judgement.overdue > 0 || lately);
    return judgement;
}

bool is_hopeless(const QueueRules& rules, std::size_t ahead, std::optional<double> rate) noexcept {
    if (rules.overload != Overload::reject || rules.max_wait.count() == 0 || !rate) {
        return false;
    }
    const std::chrono::duration<double> limit = rules.max_wait;
    return static_cast<double>(ahead) >= std::max(*rate, 0.0) * limit.count() && ahead > 0;
}

std::size_t most_handed(bool newest_first, std::size_t children, std::optional<double> rate) noexcept {
    if (!newest_first) {
        return std::numeric_limits<std::size_t>::max();
    }
    constexpr double many = 1e6;
    return children +
           static_cast<std::size_t>(std::clamp(rate.value_or(0.0) * seconds_between_looks, 0.0, many));
}

}  // namespace cede::pm
