// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "children/scoreboard.h"

namespace cede::pm {

// Who gives up. Pure: a value in, a value out.

struct ChildView {
    children::ChildState state = children::ChildState::empty;
    std::uint64_t since_ns = 0;  // of the latest move to free or idle
    bool reserved = false;       // takes from the listen queues only
};

struct Snapshot {
    std::span<const ChildView> children;  // by slot
    std::uint64_t waiting_in_listen_queue = 0;
    std::uint64_t waiting_in_handoff_queue = 0;
};

struct Decision {
    std::vector<std::uint32_t> give_up;  // slots that are to give their connection up, longest idle first
    children::Waiting mark = children::Waiting::nobody;
};

// For every waiter that no free child and no child already giving up will take, the longest-idle child gives
// up. A reserved one can do so only for those in the listen queues. Where idle children do not suffice, the
// mark is `pressure`; where everybody is provided for, `attention`.
[[nodiscard]] Decision decide(const Snapshot& snapshot);

}  // namespace cede::pm
