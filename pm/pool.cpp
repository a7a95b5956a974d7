// SPDX-License-Identifier: Apache-2.0
#include "pm/pool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {

void Pool::resize(std::uint32_t size) {
    while (children_.size() > size && children_.back().phase == Phase::vacant) {
        children_.pop_back();
    }
    if (children_.size() < size) {
        children_.resize(size);
    }
}

std::optional<std::uint32_t> Pool::find(pid_t pid) const noexcept {
    const auto found = std::ranges::find_if(
        children_, [pid](const Child& child) { return child.phase == Phase::alive && child.pid == pid; });
    if (found == children_.end()) {
        return std::nullopt;
    }
    return static_cast<std::uint32_t>(found - children_.begin());
}

std::optional<std::uint32_t> Pool::any_vacant() const noexcept {
    const auto found = std::ranges::find(children_, Phase::vacant, &Child::phase);
    if (found == children_.end()) {
        return std::nullopt;
    }
    return static_cast<std::uint32_t>(found - children_.begin());
}

bool Pool::any_starting() const noexcept {
    return std::ranges::any_of(
        children_, [](const Child& child) { return child.phase != Phase::vacant && !child.ready; });
}

std::uint32_t Pool::count(Phase phase) const noexcept {
    return static_cast<std::uint32_t>(std::ranges::count(children_, phase, &Child::phase));
}

std::uint32_t Pool::count_ready() const noexcept {
    return static_cast<std::uint32_t>(std::ranges::count(children_, true, &Child::ready));
}

std::uint32_t Pool::count_reserved(std::uint32_t generation) const noexcept {
    return static_cast<std::uint32_t>(std::ranges::count_if(children_, [generation](const Child& child) {
        return child.reserved && child.generation == generation && !child.leaving;
    }));
}

std::uint32_t Pool::count_present() const noexcept {
    return static_cast<std::uint32_t>(std::ranges::count_if(
        children_, [](const Child& child) { return child.phase != Phase::vacant && !child.superseded(); }));
}

void Pool::order(std::uint32_t slot, std::uint32_t generation, children::UniqueFd channel,
                 Clock::time_point now) {
    Child& child = children_[slot];
    child.phase = Phase::ordered;
    child.generation = generation;
    child.channel = std::move(channel);
    child.ordered_at = now;
}

void Pool::vacate(std::uint32_t slot) noexcept {
    Child& child = children_[slot];
    const auto next_age = static_cast<std::uint16_t>(child.age + 1);
    child = {};
    child.age = next_age;
}

std::string Pool::identity(std::uint32_t slot) const {
    const Child& child = children_[slot];
    return fmt::format("child={} gen={} pid={}", slot, child.generation, child.pid);
}

}  // namespace cede::pm
