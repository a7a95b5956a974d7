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
    for (std::uint32_t slot = 0; slot < snapshot.children.size(); ++slot) {
        const ChildState state = snapshot.children[slot].state;
        if (state == ChildState::free || state == ChildState::giving_up) {
            ++provided;
        } else if (state == ChildState::idle) {
            decision.give_up.push_back(slot);
        }
    }
    const std::uint64_t needed = waiters > provided ? waiters - provided : 0;
    decision.mark = needed > decision.give_up.size() ? Waiting::pressure : Waiting::attention;
    std::ranges::stable_sort(decision.give_up, {},
                             [&](std::uint32_t slot) { return snapshot.children[slot].since_ns; });
    if (needed < decision.give_up.size()) {
        decision.give_up.resize(needed);
    }
    return decision;
}

}  // namespace cede::pm
