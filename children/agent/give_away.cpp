// SPDX-License-Identifier: Apache-2.0
#include "children/agent/give_away.h"

#include <cerrno>
#include <poll.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/fd_passing.h"

namespace cede::agent {

using children::ChildReport;
using children::ChildSays;

namespace {

constexpr int longest_wait_for_room_ms = 1000;

bool send(const ChildReport& report) noexcept {
    return children::send_message(agent.handoff, &report, sizeof report, agent.connection.fd());
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

}  // namespace cede::agent
