// SPDX-License-Identifier: Apache-2.0
#include "children/agent/give_away.h"

#include <cerrno>
#include <poll.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/fd_passing.h"

namespace cede::agent {

using children::ChildReport;
using children::ChildSays;

namespace {

constexpr int longest_wait_for_room_ms = 1000;

bool send(const ChildReport& report) noexcept {
    const bool sent = children::send_message(agent.handoff, &report, sizeof report, agent.connection.fd());
    // Whatever PHP still does with it must take nothing of the next request.
    agent.connection.over = agent.connection.over || sent;
    return sent;
}

}  // namespace

bool give_away(ChildSays says) noexcept {
    ChildReport report;
    report.says = says;
    report.fresh = agent.newly_accepted && !agent.connection.answered() ? 1 : 0;
    if (send(report)) {
        return true;
    }
    if (errno != EAGAIN || says == ChildSays::see_off) {
        return false;
    }
    // Once the supervisor has read what there is, there is room.
    pollfd room{agent.handoff, POLLOUT, 0};
    libc().poll(&room, 1, longest_wait_for_room_ms);
    return send(report);
}

bool can_be_given_away() noexcept {
    return mode() == children::RunMode::serve &&
           agent.control->give_up_by.load(std::memory_order_relaxed) != children::GiveUpBy::closing_even_new;
}

}  // namespace cede::agent
