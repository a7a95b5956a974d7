// SPDX-License-Identifier: Apache-2.0
#include "children/agent/head.h"

#include <poll.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/time_limit.h"
#include "children/agent/voice.h"
#include "children/clock.h"

namespace cede::agent {

using children::RunMode;
using protocol::Outcome;

namespace {

// What is left of the time for the head that is arriving: milliseconds for poll(2), 0 if none is.
int time_for_head() noexcept {
    std::uint64_t& since = agent.connection.head_since_ns;
    since = since != 0 ? since : children::monotonic_ns();
    return TimeLimit{agent.control->read_timeout_ms.load(std::memory_order_relaxed), since}.left_ms();
}

More wait_for_bytes(bool hear_stop) noexcept {
    for (;;) {
        const int left = time_for_head();
        if (left == 0) {
            count(agent.slot->timed_out);
            report_refusal(Outcome::too_slow, agent.protocol);
            return More::gone;
        }
        pollfd watched[2] = {{agent.connection.fd(), POLLIN, 0}, {agent.channel, POLLIN, 0}};
        if (libc().poll(watched, hear_stop ? 2 : 1, left) < 0) {
            return More::interrupted;
        }
        if (watched[1].revents != 0 && (!hear_supervisor() || mode() == RunMode::stop)) {
            return More::leave;
        }
        if (watched[0].revents != 0) {
            return More::here;
        }
    }
}

}  // namespace

More wait_for_more_of_head() noexcept {
    return wait_for_bytes(false);
}

More read_more_of_head() noexcept {
    for (;;) {
        const More more = wait_for_bytes(true);
        if (more == More::interrupted) {
            continue;
        }
        if (more != More::here) {
            return more;
        }
        switch (agent.connection.fill()) {
            case Connection::Fill::data:
                return More::here;
            case Connection::Fill::nothing:
            case Connection::Fill::interrupted:
                break;
            case Connection::Fill::end:
            case Connection::Fill::failed:
                return More::gone;
        }
    }
}

}  // namespace cede::agent
