// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pm/config.h"

namespace cede::pm {

// Who waits how, when more comes than children can take. Pure: values in, values out. Times are
// CLOCK_MONOTONIC in nanoseconds.

struct QueueRules {
    std::chrono::nanoseconds max_wait{0};  // 0: no limit
    Overload overload = Overload::fifo;
    bool answers_pings = false;  // a request may be one that needs no child
    bool reserve = false;        // there are children for who is in a listen queue, and for nobody else
};

// The listen queues and what is there to be had.
struct ListenQueue {
    std::chrono::nanoseconds head_age{0};  // of who is first; 0: nobody is there
    bool pressure = false;                 // children take what they can, and it is not enough
    bool others_wait = false;              // those who have been accepted, more than the kernel hands over
    bool closed = false;                   // nothing new is accepted any more
};
// Whether the supervisor is to accept what stands there. While children keep up it is theirs.
[[nodiscard]] bool accept_now(const QueueRules& rules, const ListenQueue& queue) noexcept;

struct Judgement {
    std::size_t overdue = 0;    // so many from the front have waited too long and are refused
    bool newest_first = false;  // in which order the others are handed over
};
// `since_ns`: of all who wait, the oldest first. `last_overdue_ns`: when there was last one who had waited
// too long; 0: never. Newest first is for a queue that has been standing: once it is over, those who are left
// are served in order again.
[[nodiscard]] Judgement judge(const QueueRules& rules, std::span<const std::uint64_t> since_ns,
                              std::uint64_t last_overdue_ns, std::uint64_t now_ns) noexcept;

// Whether somebody who comes now, behind so many, would wait too long at this rate (requests a second) and is
// to be refused at once. Without a rate nobody is.
[[nodiscard]] bool is_hopeless(const QueueRules& rules, std::size_t ahead,
                               std::optional<double> rate) noexcept;

// How many may stand where they can't be put into another order until the next look, at the most: with newest
// first one for each child, and what children take meanwhile; else any number.
[[nodiscard]] std::size_t most_handed(bool newest_first, std::size_t children,
                                      std::optional<double> rate) noexcept;

}  // namespace cede::pm
