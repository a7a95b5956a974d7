// SPDX-License-Identifier: Apache-2.0
// Those who wait: what is said of them, and how many may.
#include <algorithm>
#include <sys/wait.h>
#include <utility>

#include "pm/backlog.h"
#include "pm/log.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

constexpr auto count_interval = std::chrono::seconds{1};

Counts counts_in(const children::Slot& slot) noexcept {
    Counts counts{slot.requests.load(),         slot.accepted.load(),       slot.taken.load(),
                  slot.parked.load(),           slot.closed.load(),         slot.refused.load(),
                  slot.timed_out.load(),        slot.begun.load(),          slot.abandoned.load(),
                  slot.overdue.load(),          slot.pings.load(),          slot.bodies_timed_out.load(),
                  slot.writes_timed_out.load(), slot.busy_us.load(),        {},
                  slot.waited_us.load(),        slot.longest_wait_us.load()};
    for (std::size_t i = 0; i < counts.waits.size(); ++i) {
        counts.waits[i] = slot.waits[i].load();
    }
    return counts;
}

}  // namespace

// With what others count from the start of this program on.
Totals Supervisor::totals_now() const {
    Totals now = totals_;
    now.events.give_ups_asked += dispatcher_.give_ups_asked();
    const Dispatcher::Tally tally = dispatcher_.tally();
    now.events.closed_for_room += tally.closed_for_room + tally.partial.closed_for_room;
    now.events.peers_gone += tally.peers_gone;
    now.events.abandoned += tally.waiting.abandoned + tally.partial.gone;
    now.events.overdue += tally.waiting.overdue;
    now.events.pings += tally.waiting.pings;
    now.events.pulled += tally.waiting.pulled;
    now.events.heads_too_slow += tally.partial.heads_too_slow;
    now.events.bodies_too_slow += tally.partial.bodies_too_slow;
    now.events.silent_closed += tally.silent_closed;
    now.events.lost_log_lines += lost_log_lines();
    now.events.longest_queue = std::max(now.events.longest_queue, dispatcher_.longest_queue());
    const Saturation::Sums saturated = dispatcher_.watch().saturation().sums();
    now.events.saturated_ms += static_cast<std::uint64_t>(saturated.lasted.count());
    now.events.saturations += saturated.times;
    now.events.saturated_waits += saturated.waited;
    now.events.saturated_moments += saturated.moments;
    return now;
}

void Supervisor::count_last(std::uint32_t slot, int wait_status) {
    dispatcher_.watch().child_gone(slot);
    totals_.end(slot, counts_in(scoreboard_.slot(slot)), Clock::now() - pool_.at(slot).ordered_at);
    ++totals_.events.ended;
    totals_.events.killed += WIFSIGNALED(wait_status) ? 1 : 0;
}

// Each child's, and with them the sums.
void Supervisor::count_all() {
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        if (pool_.at(slot).phase != Pool::Phase::vacant) {
            totals_.look(slot, counts_in(scoreboard_.slot(slot)), Clock::now() - pool_.at(slot).ordered_at);
        }
    }
}

Saturation::Why Supervisor::why_in_vain() const noexcept {
    if (zygote_->phase() != ZygoteHost::Phase::ready) {
        return Saturation::Why::no_zygote;
    }
    if (pool_.count_ready() >= config_.children) {
        return config_.pool_mode == PoolMode::fixed ? Saturation::Why::all_busy : Saturation::Why::at_limit;
    }
    return child_respawn_.failures() > 0 ? Saturation::Why::failing : Saturation::Why::starting;
}

Supervisor::Clock::time_point Supervisor::queue_due() const noexcept {
    return dispatcher_.watch().saturation().due();
}

void Supervisor::tend_queue(Clock::time_point now) {
    Saturation& saturation = dispatcher_.watch().saturation();
    if (saturation.due() != Clock::time_point::max()) {
        for (const Saturation::Line& line : saturation.tell(why_in_vain(), pool_.count_ready(), now)) {
            if (log_enabled(line.level)) {
                log_always(line.level, line.text);  // folded already
            }
        }
    }
    tell_fullness(now);
    if (now - counted_at_ < count_interval) {
        return;
    }
    counted_at_ = now;
    count_all();
    pace_.sample(totals_.all(), saturation.sums().lasted, now);
    if (config_.backlog_auto && course_ == Course::serving) {
        fit_backlog();
    }
}

void Supervisor::tell_fullness(Clock::time_point now) {
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        const auto news = dispatcher_.watch().fullness(i).news(now);
        if (!news || !log_enabled(LogLevel::warning)) {
            continue;
        }
        const Listener& listener = listeners_[i];
        log_always(
            LogLevel::warning,
            fmt::format(
                "{}: its queue is full, {} times and for {:.2f} s since this was last said: {} "
                "wait, and {}; serve more at once (--children), or let more wait (--backlog{})",
                listener.name, news->times, std::chrono::duration<double>{news->lasted}.count(),
                listener.backlog_granted,
                listener.kind == Listener::Kind::unix_stream
                    ? "web servers that connect get EAGAIN"
                    : "connections are dropped, to be tried again after a second",
                listener.backlog_granted < listener.backlog_asked ? ", and sysctl net.core.somaxconn" : ""));
    }
}

void Supervisor::fit_backlog() {
    BacklogNeeds needs{pace_.capacity(config_.children), config_.max_wait, config_.children, std::nullopt};
    const auto wanted = fitting_backlog(needs);
    if (!wanted) {
        return;
    }
    needs.somaxconn = most_granted();
    const unsigned fitting = *fitting_backlog(needs);
    if (fitting == *wanted) {
        backlog_cut_from_.reset();
    } else if (!backlog_cut_from_ || worth_changing(*backlog_cut_from_, *wanted)) {
        backlog_cut_from_ = wanted;
        log(LogLevel::warning,
            "--backlog auto: {} could be served in time, but the kernel lets only {} wait; set sysctl "
            "net.core.somaxconn to {} or more",
            *wanted, fitting, *wanted);
    }
    for (Listener& listener : listeners_) {
        if (!worth_changing(static_cast<unsigned>(listener.backlog_asked), fitting)) {
            continue;
        }
        const int before = listener.backlog_granted;
        listener.set_backlog(static_cast<int>(fitting), Listener::Whose::anybodys);
        log(LogLevel::info, "{}: backlog {} instead of {} (--backlog auto: {:.1f} requests a second)",
            listener.name, listener.backlog_granted, before, *needs.capacity);
        if (listener.backlog_granted < listener.backlog_asked) {
            log(LogLevel::warning,
                "{}: the kernel cut the backlog from {} to {}; set sysctl net.core.somaxconn to {} or more",
                listener.name, listener.backlog_asked, listener.backlog_granted, listener.backlog_asked);
        }
    }
}

// count_all() comes first.
void Supervisor::describe_queue(Status& status) {
    const auto now = Clock::now();
    const auto& queues = dispatcher_.queues();
    for (std::size_t i = 0; i < queues.size(); ++i) {
        const Listener& listener = listeners_[i];
        const auto granted = static_cast<unsigned>(listener.backlog_granted);
        const QueueFullness::Sums& full = dispatcher_.watch().fullness(i).sums();
        status.listeners.push_back({listener.name, queues[i].waiting, queues[i].backlog.value_or(granted),
                                    static_cast<std::uint64_t>(listener.backlog_asked), full.lasted,
                                    full.times});
    }
    status.handed = dispatcher_.handed_over();
    status.oldest = dispatcher_.watch().head_age(now);
    status.totals = totals_.all();
    status.recent = pace_.recent();
    status.backlog_auto = config_.backlog_auto;
    status.capacity = pace_.capacity(config_.children);
    const Totals::Events events = totals_now().events;
    status.saturation.lasted = std::chrono::milliseconds{events.saturated_ms};
    status.saturation.times = events.saturations;
    status.saturation.requests = events.saturated_waits;
    status.saturation.moments = events.saturated_moments;
    if (const auto since = dispatcher_.watch().saturation().since()) {
        status.saturation.since = now - *since;
    }
}

}  // namespace cede::pm
