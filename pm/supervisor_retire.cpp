// SPDX-License-Identifier: Apache-2.0
// Which children are told to end although they work.
#include <algorithm>
#include <vector>

#include "children/clock.h"
#include "pm/log.h"
#include "pm/process_memory.h"
#include "pm/supervisor.h"

namespace cede::pm {

using children::ChildState;

// Who has had nothing to do for longest; with a connection only if there is nobody without, and a reserved
// one only if there is nobody else.
void Supervisor::retire_spare(unsigned count) {
    if (count == 0) {
        return;
    }
    struct Candidate {
        bool reserved;
        bool connected;
        std::uint64_t since_ns;
        std::uint32_t slot;
        auto operator<=>(const Candidate&) const = default;
    };
    std::vector<Candidate> candidates;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        const children::Slot& books = scoreboard_.slot(slot);
        const ChildState state = books.state.load();
        if (child.phase == Pool::Phase::alive && child.ready && !child.leaving && has_time(state)) {
            candidates.push_back({child.reserved, state == ChildState::idle, books.since_ns.load(), slot});
        }
    }
    std::ranges::sort(candidates);
    candidates.resize(std::min<std::size_t>(candidates.size(), count));
    for (const Candidate& candidate : candidates) {
        retire(candidate.slot, config_.pool_mode == PoolMode::fixed
                                   ? "not needed (--children)"
                                   : "not needed (--max-spare, --idle-timeout)");
    }
}

// It ends by itself, between two requests; a connection that it has is parked.
void Supervisor::retire(std::uint32_t slot, std::string_view why) {
    log(LogLevel::info, "{} is to end: {}", pool_.identity(slot), why);
    pool_.at(slot).leaving = true;
    pool_.at(slot).leaving_since = Clock::now();
    scoreboard_.slot(slot).retire.store(1);
    Dispatcher::ring(pool_.at(slot));
}

void Supervisor::recycle(Clock::time_point now) {
    if (!config_.recycling.any() || now < recycle_due_) {
        return;
    }
    recycle_due_ = now + std::chrono::seconds{1};
    std::vector<ChildFacts> facts(pool_.size());
    const std::uint64_t now_ns = children::monotonic_ns();
    const unsigned present = pool_.count_present();
    unsigned missing =
        config_.pool_mode != PoolMode::fixed ? 0 : config_.children - std::min(config_.children, present);
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (child.phase == Pool::Phase::vacant || child.superseded()) {
            continue;
        }
        if (child.phase != Pool::Phase::alive || !child.ready || child.leaving) {
            ++missing;
            continue;
        }
        const children::Slot& books = scoreboard_.slot(slot);
        const ChildState state = books.state.load();
        const std::uint64_t since_ns = books.since_ns.load();
        ChildFacts& fact = facts[slot];
        fact.serving = state != ChildState::exiting;
        fact.age = now - child.ready_at;
        if (has_time(state) && since_ns < now_ns) {
            fact.idle_for = std::min<Clock::duration>(std::chrono::nanoseconds{now_ns - since_ns}, fact.age);
        }
        fact.rss = config_.recycling.max_rss ? resident_bytes(child.pid) : 0;
        fact.chance = child.chance;
    }
    for (const Recycled& chosen : choose_recycled(config_.recycling, facts, missing, dispatcher_.waiting())) {
        retire(chosen.slot, describe(chosen.reason));
    }
}

void Supervisor::watch_for_standstill(Clock::time_point now) {
    if (config_.stall_timeout.count() == 0 || now < standstill_due_ || course_ != Course::serving ||
        reload_.stage != Reload::Stage::none) {
        return;
    }
    standstill_due_ = now + Standstill::interval;
    const Headcount count = count_heads();
    // Those whose clients leave are begun, and never answered.
    std::uint64_t requests = totals_now().all().requests;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        requests += scoreboard_.slot(slot).begun.load();
    }
    const Standstill::View view{dispatcher_.waiting() > 0,
                                count.spare == 0 && count.starting == 0 && count.busy > 0, requests};
    if (standstill_.check(view, config_.stall_timeout, now)) {
        log(LogLevel::error,
            "{} children are busy, {} connections wait, and no request was begun or ended for {} s: all of "
            "them are replaced ({})",
            count.busy, dispatcher_.waiting(), std::chrono::duration<double>{config_.stall_timeout}.count(),
            where(config_, "stall-timeout"));
        reload("standstill", [](const Outcome&) {});
        reload_.by_force = reload_.stage != Reload::Stage::none;
    }
}

}  // namespace cede::pm
