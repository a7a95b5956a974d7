// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cede::pm {

// Which children are replaced although they work. Pure: facts in, slots out.
struct RecyclingRules {
    using Clock = std::chrono::steady_clock;

    std::optional<Clock::duration> max_age{};   // since it was ready
    std::optional<std::uint64_t> max_rss{};     // bytes
    std::optional<Clock::duration> max_idle{};  // without a request
    unsigned jitter_percent = 10;  // of max_age, taken off by chance, so that not all are due at once

    [[nodiscard]] bool any() const noexcept { return max_age || max_rss || max_idle; }
};

enum class RecycleReason : std::uint8_t { age, rss, idle };
[[nodiscard]] std::string_view describe(RecycleReason reason) noexcept;

struct ChildFacts {
    bool serving = false;  // ready, and not told to end
    std::chrono::steady_clock::duration age{};
    std::chrono::steady_clock::duration idle_for{};  // 0 while it has a request
    std::uint64_t rss = 0;                           // bytes
    unsigned chance = 0;                             // 0 to 99, drawn once for each process
};

struct Recycled {
    std::uint32_t slot;
    RecycleReason reason;
};

// Of those that are due, the most urgent, but only as long as not more than an eighth of all children, or
// one, are missing: `missing` are starting, leaving, or gone. Nobody while somebody waits.
[[nodiscard]] std::vector<Recycled> choose_recycled(const RecyclingRules& rules,
                                                    std::span<const ChildFacts> children, unsigned missing,
                                                    std::uint64_t waiting);

// How many requests one child serves at the most: `limit`, less a part of it by chance (0 to 99), never 0.
[[nodiscard]] std::uint64_t quota_of(std::uint64_t limit, unsigned jitter_percent, unsigned chance) noexcept;

}  // namespace cede::pm
