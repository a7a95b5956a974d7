// SPDX-License-Identifier: Apache-2.0
// The zygote and its children: how they start, how many there are, and what they say.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "children/clock.h"
#include "children/fd_passing.h"
#include "pm/log.h"
#include "pm/process_memory.h"
#include "pm/supervisor.h"

namespace cede::pm {

using children::ChildReport;
using children::ChildSays;
using children::ChildState;
using children::ZygoteSays;

namespace {

long long microseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void Supervisor::start_zygote() {
    std::string explanation;
    if (!zygote_.start(Clock::now(), explanation)) {
        zygote_respawn_.refused(Clock::now());
        fail_start(fmt::format("{}: {}", config_.command.front(), explanation));
        return;
    }
    log(LogLevel::info, "zygote gen={} pid={} started: {}", zygote_.generation(), zygote_.pid(),
        config_.command.front());
}

// The very first start must succeed: whoever starts cede wants to hear it. Later ones are tried again.
void Supervisor::fail_start(const std::string& explanation) {
    log(LogLevel::error, "{}", explanation);
    if (course_ == Course::starting) {
        exit_status_ = Error::failure;
        stop();
    }
}

void Supervisor::on_zygote_ready() {
    log(LogLevel::info, "zygote gen={} pid={} ready after {} ms; its children speak {}", zygote_.generation(),
        zygote_.pid(), microseconds(Clock::now() - zygote_.started_at()) / 1000,
        protocol::name_of(zygote_.protocol()));
    dispatcher_.speak(zygote_.protocol());
    resize();
    enter_service();
}

// Slots are the children's to write: a wrong state is a wrong count, and no more.
Headcount Supervisor::count_heads() {
    Headcount count;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (child.phase == Pool::Phase::vacant) {
            continue;
        }
        const ChildState state = scoreboard_.slot(slot).state.load();
        // It says that it is ready before it publishes so.
        if (!child.ready || state == ChildState::starting) {
            ++count.starting;
        } else if (child.leaving || state == ChildState::exiting) {
            ++count.leaving;
        } else if (state == ChildState::free || state == ChildState::idle || state == ChildState::giving_up) {
            ++count.spare;
        } else {
            ++count.busy;
        }
    }
    if (config_.pool_mode != PoolMode::fixed) {
        count.waiting = dispatcher_.waiting();
    }
    return count;
}

void Supervisor::resize() {
    if ((course_ != Course::starting && course_ != Course::serving) ||
        zygote_.phase() != ZygoteHost::Phase::ready || Clock::now() < child_respawn_.earliest()) {
        return;
    }
    const Sizing::Change change = sizing_.decide(count_heads(), Clock::now());
    for (unsigned started = 0; started < change.start; ++started) {
        const auto slot = pool_.any_vacant();
        if (!slot || !order_child(*slot)) {
            return;
        }
    }
    retire_spare(change.retire);
}

// Who has had nothing to do for longest; with a connection only if there is nobody without.
void Supervisor::retire_spare(unsigned count) {
    if (count == 0) {
        return;
    }
    struct Candidate {
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
        if (child.ready && !child.leaving && (state == ChildState::free || state == ChildState::idle)) {
            candidates.push_back({state == ChildState::idle, books.since_ns.load(), slot});
        }
    }
    std::ranges::sort(candidates);
    candidates.resize(std::min<std::size_t>(candidates.size(), count));
    for (const Candidate& candidate : candidates) {
        retire(candidate.slot, "not needed (--max-spare, --idle-timeout)");
    }
}

// It ends by itself, between two requests; a connection that it has is parked.
void Supervisor::retire(std::uint32_t slot, std::string_view why) {
    log(LogLevel::info, "{} is to end: {}", pool_.identity(slot), why);
    pool_.at(slot).leaving = true;
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
    unsigned missing = 0;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        const bool vacant = child.phase == Pool::Phase::vacant;
        if (vacant || !child.ready || child.leaving) {
            missing += vacant && config_.pool_mode != PoolMode::fixed ? 0U : 1U;
            continue;
        }
        const children::Slot& books = scoreboard_.slot(slot);
        const ChildState state = books.state.load();
        const std::uint64_t since_ns = books.since_ns.load();
        ChildFacts& fact = facts[slot];
        fact.serving = state != ChildState::exiting;
        fact.age = now - child.ready_at;
        if ((state == ChildState::free || state == ChildState::idle) && since_ns < now_ns) {
            fact.idle_for = std::min<Clock::duration>(std::chrono::nanoseconds{now_ns - since_ns}, fact.age);
        }
        fact.rss = config_.recycling.max_rss ? resident_bytes(child.pid) : 0;
        fact.chance = child.chance;
    }
    for (const Recycled& chosen : choose_recycled(config_.recycling, facts, missing, dispatcher_.waiting())) {
        retire(chosen.slot, describe(chosen.reason));
    }
}

// A process that hangs before it asks for a connection would take a place for ever.
void Supervisor::end_slow_starts(Clock::time_point now) {
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        Pool::Child& child = pool_.at(slot);
        if (child.phase == Pool::Phase::vacant || child.ready || child.leaving ||
            now - child.ordered_at <= config_.start_timeout) {
            continue;
        }
        if (child.phase == Pool::Phase::ordered) {
            log(LogLevel::error, "zygote gen={} pid={} does not fork within the start timeout, replacing it",
                zygote_.generation(), zygote_.pid());
            zygote_.kill();
            return;
        }
        log(LogLevel::error, "{} is not ready within the start timeout, killing it (--start-timeout)",
            pool_.identity(slot));
        child.leaving = true;
        kill(child.pid, SIGKILL);
    }
}

bool Supervisor::order_child(std::uint32_t slot) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        log(LogLevel::error,
            "can't make a channel for child={}: {} (raise the limit of open files, ulimit -n)", slot,
            std::strerror(errno));
        child_respawn_.refused(Clock::now());
        return false;
    }
    children::UniqueFd ours{ends[0]};
    const children::UniqueFd theirs{ends[1]};
    scoreboard_.reset(slot, ChildState::starting);
    constexpr unsigned chances = 100;
    const auto chance = static_cast<unsigned>(random_() % chances);
    scoreboard_.slot(slot).quota = quota_of(config_.max_requests, config_.recycling.jitter_percent, chance);
    const Poller::Tag tag{Poller::Kind::child, slot, pool_.at(slot).age};
    if (!zygote_.order(slot, theirs.get()) || !poller_.add(ours.get(), EPOLLIN, tag)) {
        scoreboard_.reset(slot, ChildState::empty);
        child_respawn_.refused(Clock::now());
        return false;
    }
    pool_.order(slot, zygote_.generation(), std::move(ours), Clock::now());
    pool_.at(slot).chance = chance;
    return true;
}

void Supervisor::on_forked(const children::ZygoteReport& report) {
    if (report.slot >= pool_.size() || pool_.at(report.slot).phase != Pool::Phase::ordered) {
        return;
    }
    if (report.says == ZygoteSays::not_forked) {
        log(LogLevel::error, "can't fork child={}: {} (see ulimit -u, the cgroup's pids.max and free memory)",
            report.slot, std::strerror(report.number));
        drop_channel(report.slot);
        scoreboard_.reset(report.slot, ChildState::empty);
        pool_.vacate(report.slot);
        child_respawn_.refused(Clock::now());
        return;
    }
    Pool::Child& child = pool_.at(report.slot);
    child.phase = Pool::Phase::alive;
    child.pid = report.pid;
    ++totals_.events.started;
    const auto early = std::ranges::find(early_exits_, child.pid, &EarlyExit::pid);
    if (early != early_exits_.end()) {
        const int status = early->status;
        early_exits_.erase(early);
        on_child_exit(report.slot, status);
    } else if (child.ready) {
        on_child_ready(report.slot);
    }
    resize();
}

void Supervisor::on_child_readable(const Poller::Event& event) {
    const std::uint32_t slot = event.tag.index;
    Pool::Child& child = pool_.at(slot);
    if (child.age != event.tag.age || !child.channel) {
        return;
    }
    for (;;) {
        ChildReport report;
        const auto received = children::receive_message(child.channel.get(), &report, sizeof report, false);
        const children::UniqueFd unwanted{received.fd};
        if (received.kind == children::Received::Kind::nothing) {
            return;
        }
        if (received.kind != children::Received::Kind::message) {
            on_channel_end(slot);  // the end of a child itself is reported by the kernel
            return;
        }
        if (received.size != sizeof report) {
            log(LogLevel::warning, "{} sent a message of {} bytes, which is none of ours; ignored",
                pool_.identity(slot), received.size);
            continue;
        }
        switch (report.says) {
            case ChildSays::look:
                dispatcher_.look_later();
                break;
            case ChildSays::pass_on:
                dispatcher_.wake_later();
                break;
            case ChildSays::park:
            case ChildSays::see_off:
                break;  // have a way of their own
            case ChildSays::refused:
                on_refused(slot, report);
                break;
            case ChildSays::ready:
                if (!child.ready) {
                    child.ready = true;
                    child.ready_at = Clock::now();
                    if (child.phase == Pool::Phase::alive) {
                        on_child_ready(slot);
                    } else if (child.abandoned) {
                        (void)adopt(slot);
                    }
                }
                break;
        }
    }
}

void Supervisor::on_child_ready(std::uint32_t slot) {
    const Pool::Child& child = pool_.at(slot);
    log(LogLevel::info, "{} ready ready_us={}", pool_.identity(slot),
        microseconds(child.ready_at - child.ordered_at));
    dispatcher_.child_is_watching();
    dispatcher_.look_later();
    enter_service();
}

void Supervisor::enter_service() {
    const std::uint32_t ready = pool_.count_ready();
    if (course_ == Course::starting && ready >= sizing_.sizes().at_start) {
        course_ = Course::serving;
        zygote_respawn_.succeeded();
        log(LogLevel::notice, "ready children={}", ready);
    }
}

void Supervisor::on_refused(std::uint32_t slot, const ChildReport& report) {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < pool_.size(); ++i) {
        total += scoreboard_.slot(i).refused.load(std::memory_order_relaxed);
    }
    const std::string line = refusals_.report(Clock::now(), pool_.identity(slot), report.why, report.spoken,
                                              zygote_.protocol(), total);
    if (!line.empty()) {
        log(LogLevel::warning, "{}", line);
    }
}

}  // namespace cede::pm
