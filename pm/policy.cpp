// SPDX-License-Identifier: Apache-2.0
#include "pm/policy.h"

#include <algorithm>

namespace cede::pm {

using children::ChildState;
using children::Waiting;

Decision decide(const Snapshot& snapshot) {
    Decision decision;
    const std::uint64_t waiters = snapshot.waiting_in_listen_queue + snapshot.waiting_in_handoff_queue;
    if (waiters == 0) {
        return decision;
    }
    std::uint64_t provided = 0;
    std::uint64_t reserved = 0;  // provided, for the listen queues only
    std::vector<std::uint32_t> idle;
    for (std::uint32_t slot = 0; slot < snapshot.children.size(); ++slot) {
        const ChildView& child = snapshot.children[slot];
        if (child.state == ChildState::free || child.state == ChildState::giving_up) {
            ++(child.reserved ? reserved : provided);
        } else if (child.state == ChildState::idle) {
            idle.push_back(slot);
        }
    }
    const std::uint64_t taken_by_reserved = std::min(reserved, snapshot.waiting_in_listen_queue);
    std::uint64_t needed = waiters - taken_by_reserved;
    needed -= std::min(needed, provided);
    // So many more of those in the listen queues could be left to reserved ones.
    std::uint64_t for_reserved = snapshot.waiting_in_listen_queue - taken_by_reserved;
    std::ranges::stable_sort(idle, {}, [&](std::uint32_t slot) { return snapshot.children[slot].since_ns; });
    for (const std::uint32_t slot : idle) {
        const bool is_reserved = snapshot.children[slot].reserved;
        if (needed == 0 || (is_reserved && for_reserved == 0)) {
            continue;
        }
        for_reserved -= is_reserved ? 1 : 0;
        --needed;
        decision.give_up.push_back(slot);
    }
    decision.mark = needed > 0 ? Waiting::pressure : Waiting::attention;
    return decision;
}

}  // namespace cede::pm
