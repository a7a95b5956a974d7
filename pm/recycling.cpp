// SPDX-License-Identifier: Apache-2.0
#include "pm/recycling.h"

#include <algorithm>

namespace cede::pm {
namespace {

constexpr unsigned chances = 100;
constexpr unsigned percent = 100;
constexpr std::size_t share = 8;

std::optional<RecycleReason> reason_for(const RecyclingRules& rules, const ChildFacts& child) {
    if (!child.serving) {
        return std::nullopt;
    }
    if (rules.max_rss && child.rss > *rules.max_rss) {
        return RecycleReason::rss;
    }
    if (rules.max_age && child.age >= *rules.max_age - *rules.max_age * rules.jitter_percent * child.chance /
                                                           (percent * chances)) {
        return RecycleReason::age;
    }
    if (rules.max_idle && child.idle_for >= *rules.max_idle) {
        return RecycleReason::idle;
    }
    return std::nullopt;
}

}  // namespace

std::string_view describe(RecycleReason reason) noexcept {
    switch (reason) {
        case RecycleReason::age:
            return "--max-age";
        case RecycleReason::rss:
            return "--max-rss";
        case RecycleReason::idle:
            return "--max-idle";
    }
    return "unknown";
}

std::vector<Recycled> choose_recycled(const RecyclingRules& rules, std::span<const ChildFacts> children,
                                      unsigned missing, std::uint64_t waiting) {
    std::vector<Recycled> due;
    const std::size_t allowed = std::max<std::size_t>(1, children.size() / share);
    if (waiting > 0 || missing >= allowed) {
        return due;
    }
    for (std::uint32_t slot = 0; slot < children.size(); ++slot) {
        if (const auto reason = reason_for(rules, children[slot])) {
            due.push_back({slot, *reason});
        }
    }
    std::ranges::stable_sort(due, [&children](const Recycled& one, const Recycled& other) {
        const bool heavy = one.reason == RecycleReason::rss;
        const bool other_heavy = other.reason == RecycleReason::rss;
        return heavy != other_heavy ? heavy : children[one.slot].age > children[other.slot].age;
    });
    due.resize(std::min(due.size(), allowed - missing));
    return due;
}

std::uint64_t quota_of(std::uint64_t limit, unsigned jitter_percent, unsigned chance) noexcept {
    // In this order nothing overflows: a limit is an unsigned number of 32 bits.
    return limit - limit * jitter_percent * chance / (percent * chances);
}

}  // namespace cede::pm
