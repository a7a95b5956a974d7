// SPDX-License-Identifier: Apache-2.0
#include "children/agent/voice.h"

#include <utility>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/clock.h"
#include "children/fd_passing.h"

namespace cede::agent {

using children::ChildReport;
using children::ChildSays;
using children::ChildState;
using children::RunMode;
using children::Waiting;

void count(std::atomic<std::uint64_t>& counter, std::uint64_t more) noexcept {
    // One writer: a plain increment, without the cost of a locked one.
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

// Sequentially consistent on purpose: what follows reads Control::waiting, and the supervisor does the
// reverse. One of the two always sees the other.
void publish(ChildState state) noexcept {
    agent.slot->state.store(state, std::memory_order_seq_cst);
}

void publish_rest(ChildState state) noexcept {
    agent.slot->since_ns.store(children::monotonic_ns(), std::memory_order_relaxed);
    publish(state);
}

Waiting waiting() noexcept {
    return agent.control->waiting.load(std::memory_order_seq_cst);
}
RunMode mode() noexcept {
    return agent.control->mode.load(std::memory_order_relaxed);
}

void record_wait() noexcept {
    constexpr std::uint64_t us_in_ms = 1000;
    const std::uint64_t waited = std::exchange(agent.connection.waited_us, 0);
    std::size_t bucket = 0;
    while (bucket + 1 < children::wait_buckets && waited > children::wait_bounds_ms[bucket] * us_in_ms) {
        ++bucket;
    }
    count(agent.slot->waits[bucket]);
    count(agent.slot->waited_us, waited);
    if (waited > agent.slot->longest_wait_us.load(std::memory_order_relaxed)) {
        agent.slot->longest_wait_us.store(waited, std::memory_order_relaxed);
    }
    agent.connection.begun_ns = children::monotonic_ns();
    agent.connection.body_since_ns = 0;
    agent.connection.body_bytes = 0;
}

void record_end() noexcept {
    constexpr std::uint64_t ns_in_us = 1000;
    count(agent.slot->busy_us, (children::monotonic_ns() - agent.connection.begun_ns) / ns_in_us);
}

void ring(ChildSays says) noexcept {
    ChildReport report;
    report.says = says;
    (void)children::send_message(agent.channel, &report, sizeof report, -1);
}

namespace {

// At the most once a second.
void report(protocol::Outcome why, protocol::Protocol spoken, std::uint64_t& last_ns) noexcept {
    constexpr std::uint64_t between_reports_ns = 1'000'000'000;
    const std::uint64_t now = children::monotonic_ns();
    if (last_ns != 0 && now - last_ns < between_reports_ns) {
        return;
    }
    last_ns = now;
    ChildReport report;
    report.says = ChildSays::refused;
    report.why = why;
    report.spoken = spoken;
    (void)children::send_message(agent.channel, &report, sizeof report, -1);
}

}  // namespace

void report_refusal(protocol::Outcome why, protocol::Protocol spoken) noexcept {
    static constinit std::uint64_t last_ns = 0;
    count(agent.slot->refused);
    report(why, spoken, last_ns);
}

void report_slow_peer(protocol::Outcome why) noexcept {
    static constinit std::uint64_t last_ns = 0;
    report(why, agent.protocol, last_ns);
}

bool hear_supervisor() noexcept {
    children::Doorbell bell;
    const auto heard = children::receive_message(agent.channel, &bell, sizeof bell, false);
    if (heard.fd >= 0) {
        libc().close(heard.fd);
    }
    agent.orphaned =
        heard.kind == children::Received::Kind::closed || heard.kind == children::Received::Kind::failed;
    return !agent.orphaned;
}

bool move_from_idle(ChildState to) noexcept {
    ChildState expected = ChildState::idle;
    return agent.slot->state.compare_exchange_strong(expected, to, std::memory_order_seq_cst);
}

}  // namespace cede::agent
