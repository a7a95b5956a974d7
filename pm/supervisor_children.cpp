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

// With a NUL behind it; what is too long was refused with the configuration.
template <std::size_t size>
void put_text(char (&place)[size], std::string_view text) {
    std::ranges::fill(place, '\0');
    std::ranges::copy(text.substr(0, size - 1), place);
}

}  // namespace

std::unique_ptr<ZygoteHost> Supervisor::make_zygote(Start start) {
    children::SpawnRequest& request = start.request;
    request.stdin_fd = listeners_.front().fd.get();
    std::vector<int> descriptors{scoreboard_.fd(), dispatcher_.handoff_receiver()};
    for (const Listener& listener : listeners_) {
        descriptors.push_back(listener.fd.get());
    }
    // What the request has already is the agent's file, which stays last (zygote_protocol.h).
    request.inherited_fds.insert(request.inherited_fds.begin(), descriptors.begin(), descriptors.end());
    const std::uint32_t id = ++last_zygote_id_;
    return std::make_unique<ZygoteHost>(
        poller_, id, std::move(start),
        ZygoteHost::Listener{[this, id] { on_zygote_ready(id); },
                             [this](const children::ZygoteReport& report) { on_forked(report); }});
}

void Supervisor::start_zygote() {
    std::string explanation;
    publish_title(config_.title);
    if (!launch(*zygote_, config_, explanation)) {
        zygote_respawn_.refused(Clock::now());
        fail_start(fmt::format("{}: {}", config_.command.front(), explanation));
        return;
    }
}

// The very first start must succeed: whoever starts cede wants to hear it. Later ones are tried again.
void Supervisor::fail_start(const std::string& explanation) {
    log(LogLevel::error, "{}", explanation);
    if (course_ == Course::starting) {
        exit_status_ = Error::failure;
        stop();
    }
}

void Supervisor::on_zygote_ready(std::uint32_t id) {
    const ZygoteHost* const zygote = find_zygote(id);
    log(LogLevel::info, "{} gen={} pid={} ready after {} ms; its children speak {}", zygote->role(),
        zygote->generation(), zygote->pid(), microseconds(Clock::now() - zygote->started_at()) / 1000,
        protocol::name_of(zygote->protocol()));
    if (zygote == next_zygote_.get()) {
        prove_next();
        return;
    }
    dispatcher_.speak(zygote->protocol());
    resize();
    enter_service();
}

// Slots are the children's to write: a wrong state is a wrong count, and no more.
Headcount Supervisor::count_heads() {
    Headcount count;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (child.phase == Pool::Phase::vacant || child.superseded()) {
            continue;
        }
        const ChildState state = scoreboard_.slot(slot).state.load();
        // It says that it is ready before it publishes so.
        if (!child.ready || state == ChildState::starting) {
            ++count.starting;
        } else if (child.leaving || state == ChildState::exiting) {
            ++count.leaving;
        } else if (child.reserved) {
            ++count.reserved;
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
        zygote_->phase() != ZygoteHost::Phase::ready || Clock::now() < child_respawn_.earliest() ||
        upgrade_.stage == Upgrade::Stage::waiting || upgrade_.stage == Upgrade::Stage::settling) {
        return;
    }
    const Sizing::Change change = sizing_.decide(count_heads(), Clock::now());
    for (unsigned started = 0; started < change.start; ++started) {
        if (!order_child(*zygote_, config_)) {
            return;
        }
    }
    // While one generation replaces another there are more for a moment.
    if (reload_.stage == Reload::Stage::none) {
        retire_spare(change.retire);
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
            ZygoteHost* const zygote = find_zygote_of(child.generation);
            if (zygote == nullptr) {
                continue;
            }
            log(LogLevel::error, "zygote gen={} pid={} does not fork within the start timeout, replacing it",
                zygote->generation(), zygote->pid());
            zygote->kill();
            return;
        }
        log(LogLevel::error, "{} is not ready within the start timeout, killing it (--start-timeout)",
            pool_.identity(slot));
        child.leaving = true;
        kill_child(slot, SIGKILL);
    }
}

// Where a child could be; there is room for those of two generations.
std::optional<std::uint32_t> Supervisor::find_place() {
    if (const auto slot = pool_.any_vacant()) {
        return slot;
    }
    if (pool_.size() == scoreboard_.slots()) {
        return std::nullopt;
    }
    pool_.resize(pool_.size() + 1);
    scoreboard_.control().slots_used = pool_.size();
    return pool_.size() - 1;
}

// The slot; none if it could not be ordered.
std::optional<std::uint32_t> Supervisor::order_child(ZygoteHost& zygote, const Config& config) {
    const auto place = find_place();
    if (!place) {
        return std::nullopt;
    }
    const std::uint32_t slot = *place;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        log(LogLevel::error,
            "can't make a channel for child={}: {} (raise the limit of open files, ulimit -n)", slot,
            std::strerror(errno));
        child_respawn_.refused(Clock::now());
        return std::nullopt;
    }
    children::UniqueFd ours{ends[0]};
    const children::UniqueFd theirs{ends[1]};
    const auto output = open_output(slot, zygote, config);
    if (!output) {
        child_respawn_.refused(Clock::now());
        return std::nullopt;
    }
    scoreboard_.reset(slot, ChildState::starting);
    constexpr unsigned chances = 100;
    const auto chance = static_cast<unsigned>(random_() % chances);
    scoreboard_.slot(slot).quota = quota_of(config.max_requests, config.recycling.jitter_percent, chance);
    // The first ones of each generation; who takes the place of one that goes is one again.
    const bool reserved = pool_.count_reserved(zygote.generation()) < config.probe_reserve;
    scoreboard_.slot(slot).reserved = reserved ? 1 : 0;
    put_text(scoreboard_.slot(slot).ping_path, config.ping_path);
    put_text(scoreboard_.slot(slot).queue_start, config.queue_start);
    const Poller::Tag tag{Poller::Kind::child, slot, pool_.at(slot).age};
    if (!zygote.order(slot, theirs.get(), output->get(), output_of(zygote)) ||
        !poller_.add(ours.get(), EPOLLIN, tag)) {
        end_output(slot);
        scoreboard_.reset(slot, ChildState::empty);
        child_respawn_.refused(Clock::now());
        return std::nullopt;
    }
    pool_.order(slot, zygote.generation(), std::move(ours), Clock::now());
    Pool::Child& child = pool_.at(slot);
    child.chance = chance;
    child.reserved = reserved;
    child.pid = zygote.executed();
    if (child.pid > 0) {
        on_alive(slot);
    }
    return slot;
}

// Its process is there, and known.
void Supervisor::on_alive(std::uint32_t slot) {
    pool_.at(slot).phase = Pool::Phase::alive;
    ++totals_.events.started;
    begin_output(slot);
    if (pool_.at(slot).condemned) {
        kill_child(slot, SIGKILL);
    }
}

void Supervisor::on_forked(const children::ZygoteReport& report) {
    if (report.slot >= pool_.size() || pool_.at(report.slot).phase != Pool::Phase::ordered) {
        return;
    }
    if (report.says == ZygoteSays::not_forked) {
        log(LogLevel::error, "can't fork child={}: {} (see ulimit -u, the cgroup's pids.max and free memory)",
            report.slot, std::strerror(report.number));
        child_respawn_.refused(Clock::now());
        ++totals_.events.not_started;
        vacate(report.slot, std::strerror(report.number));
        return;
    }
    Pool::Child& child = pool_.at(report.slot);
    if (!is_child_of_ours(report.pid)) {
        log(LogLevel::error,
            "zygote gen={} says that child={} is pid={}, which is no child of ours; replacing it",
            report.generation, report.slot, report.pid);
        if (ZygoteHost* const zygote = find_zygote_of(report.generation)) {
            zygote->kill();
        }
        vacate(report.slot, "it is not there");
        return;
    }
    child.pid = report.pid;
    on_known(report.slot);
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
            case ChildSays::park_partial:
            case ChildSays::linger:
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
    on_successor_ready(slot);
    enter_service();
}

void Supervisor::enter_service() {
    const std::uint32_t ready = pool_.count_ready();
    if (course_ == Course::starting && ready >= sizing_.sizes().at_start) {
        course_ = Course::serving;
        zygote_respawn_.succeeded();
        log(LogLevel::notice, "ready children={}", ready);
        service_manager_.ready(summary());
        begin_next_reload();
    }
}

void Supervisor::on_refused(std::uint32_t slot, const ChildReport& report) {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < pool_.size(); ++i) {
        total += scoreboard_.slot(i).refused.load(std::memory_order_relaxed);
    }
    const std::string line = refusals_.report(Clock::now(), pool_.identity(slot), report.why, report.spoken,
                                              zygote_->protocol(), total);
    if (!line.empty()) {
        log(LogLevel::warning, "{}", line);
    }
}

}  // namespace cede::pm
