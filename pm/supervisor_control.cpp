// SPDX-License-Identifier: Apache-2.0
// What the supervisor does for whoever commands it through the control socket.
#include <algorithm>
#include <chrono>
#include <exception>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "children/clock.h"
#include "pm/log.h"
#include "pm/process_memory.h"
#include "pm/supervisor.h"

namespace cede::pm {

using children::ChildState;

namespace {

// Asking for the memory of a process takes some microseconds: of a thousand, too many for one turn.
constexpr std::uint32_t most_with_memory = 500;

std::string_view word_for(PoolMode mode) noexcept {
    switch (mode) {
        case PoolMode::fixed:
            return "static";
        case PoolMode::dynamic:
            return "dynamic";
        case PoolMode::ondemand:
            return "ondemand";
    }
    return {};
}

std::string_view word_for(children::Waiting mark) noexcept {
    switch (mark) {
        case children::Waiting::nobody:
            return "nobody";
        case children::Waiting::attention:
            return "attention";
        case children::Waiting::pressure:
            return "pressure";
    }
    return {};
}

// Slots are the children's to write: nonsense there is a wrong word here.
std::string_view word_for(const Pool::Child& child, ChildState state) noexcept {
    if (child.phase == Pool::Phase::ordered) {
        return children::name_of(ChildState::starting);
    }
    const auto number = static_cast<std::uint32_t>(state);
    return number == 0 || number > children::last_child_state ? "unknown" : children::name_of(state);
}

}  // namespace

void Supervisor::control_by(ControlSocket socket) {
    control_socket_ = std::move(socket);
    control_ = std::make_unique<ControlServer>(
        loop_, std::move(control_socket_.fd),
        ControlServer::Actions{
            [this] { return status_json(status()); },
            [this](Answer answer) { reload("cede reload", std::move(answer)); },
            [this](bool fast, Answer answer) { stop_on_command(fast, std::move(answer)); },
            [this](int client) { upgrade(children::UniqueFd{client}); },
            [this] { return reopen_on_command(); },
            [this](unsigned count, Answer answer) { set_children(count, std::move(answer)); },
        });
}

Status Supervisor::status() {
    constexpr std::string_view courses[] = {"starting", "serving", "draining", "stopping"};
    Status status;
    status.version = CEDE_VERSION;
    status.pid = getpid();
    status.title = config_.title;
    status.course = courses[static_cast<std::size_t>(course_)];
    status.uptime = Clock::now() - born_;
    status.generation = zygote_->generation();
    status.protocol = protocol::name_of(zygote_->protocol());
    status.pool_mode = word_for(config_.pool_mode);
    status.limit = config_.children;
    if (config_.pool_mode == PoolMode::fixed) {
        status.wanted = config_.children;
    }
    count_all();
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        if (pool_.at(slot).phase != Pool::Phase::vacant) {
            status.children.push_back(status_of(slot));
        }
    }
    status.pressure = word_for(dispatcher_.mark());
    status.parked = dispatcher_.parked();
    status.leaving = dispatcher_.being_closed();
    describe_queue(status);
    status.events = totals_now().events;
    status.last_reload = last_reload_;
    return status;
}

Status::Child Supervisor::status_of(std::uint32_t slot) {
    const Pool::Child& child = pool_.at(slot);
    const children::Slot& books = scoreboard_.slot(slot);
    const ChildState state = books.state.load();
    const std::uint64_t since_ns = books.since_ns.load();
    const std::uint64_t now_ns = children::monotonic_ns();
    const auto age = Clock::now() - child.ordered_at;
    Status::Child shown{slot,
                        child.pid,
                        child.generation,
                        word_for(child, state),
                        child.leaving,
                        totals_.seen(slot).requests,
                        age,
                        {},
                        {}};
    if (has_time(state) && since_ns < now_ns) {
        shown.idle = std::min<Status::Seconds>(std::chrono::nanoseconds{now_ns - since_ns}, age);
    }
    if (child.pid > 0 && pool_.size() <= most_with_memory) {
        shown.rss = resident_bytes(child.pid);
    }
    return shown;
}

// For people, in one line.
std::string Supervisor::summary() {
    const Headcount count = count_heads();
    return fmt::format(
        "generation {}: {} children busy, {} spare, {} starting; {} connections parked, {} waiting",
        zygote_->generation(), count.busy, count.spare, count.starting, dispatcher_.parked(),
        dispatcher_.waiting());
}

void Supervisor::tend_service_manager(Clock::time_point now) {
    constexpr auto status_interval = std::chrono::seconds{10};
    service_manager_.tend(now);
    if (service_manager_.listens() && course_ == Course::serving && reload_.stage == Reload::Stage::none &&
        now >= service_status_due_) {
        service_status_due_ = now + status_interval;
        service_manager_.status(summary());
    }
}

Outcome Supervisor::reopen_on_command() {
    if (const auto reopened = reopen_log(); !reopened) {
        return {false, reopened.error().message};
    }
    return {true, config_.log.starts_with('/')
                      ? fmt::format("the log {} was reopened", config_.log)
                      : fmt::format("the log goes to {}: nothing to reopen", config_.log)};
}

void Supervisor::set_children(unsigned children, Answer answer) {
    if (course_ != Course::serving) {
        answer({false, "cede is starting or stopping"});
        return;
    }
    Config changed = config_;
    changed.children = children;
    const auto sizes = sizes_of(changed);
    if (!sizes || slots_for(changed) > scoreboard_.slots()) {
        answer({false, sizes ? fmt::format("there is room for {} children; restart cede with --children {}",
                                           most_children_in(scoreboard_.slots()), children)
                             : sizes.error().message});
        return;
    }
    if (children_wanted_) {
        children_wanted_->answer({false, "another number was asked for meanwhile"});
    }
    log(LogLevel::notice, "children: {} instead of {}", children, config_.children);
    config_.children = children;
    config_.settings.emplace_back("children", std::to_string(children));
    if (pool_.size() < children) {
        pool_.resize(children);
    }
    sizing_.set(*sizes);
    raise_open_files(config_);
    dispatcher_.set_room(room_within_limit(config_));
    publish_settings();
    children_wanted_.emplace(children, Clock::now() + config_.start_timeout, std::move(answer));
    resize();
    check_children_wanted(Clock::now());
    arm_timer();
}

void Supervisor::check_children_wanted(Clock::time_point now) {
    if (!children_wanted_) {
        return;
    }
    unsigned serving = 0;
    bool lingering = false;  // told to end, and has not heard
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const ChildState state = scoreboard_.slot(slot).state.load();
        serving += pool_.at(slot).ready && !pool_.at(slot).leaving ? 1U : 0U;
        lingering = lingering || (pool_.at(slot).leaving && has_time(state));
    }
    const unsigned wanted = children_wanted_->children;
    const bool done =
        !lingering && (config_.pool_mode == PoolMode::fixed ? serving == wanted : serving <= wanted);
    if (!done && now < children_wanted_->deadline) {
        return;
    }
    const Answer answer = std::move(children_wanted_->answer);
    children_wanted_.reset();
    answer(
        {done, done ? fmt::format("{} children serve, of {} at the most", serving, wanted)
                    : fmt::format("{} children serve, and {} were asked for; see the log", serving, wanted)});
}

// Answered by end_control(), when all is over.
void Supervisor::stop_on_command(bool fast, Answer answer) {
    stops_asked_.push_back({fast, std::move(answer)});
    if (!fast) {
        drain("cede stop");
    } else if (course_ != Course::stopping) {
        log(LogLevel::notice, "stopping at once (cede stop --fast)");
        stop();
    }
    arm_timer();
}

void Supervisor::end_control() noexcept {
    control_socket_.remove_file();
    try {
        for (const StopAsked& asked : std::exchange(stops_asked_, {})) {
            const bool cut_short = !asked.fast && course_ == Course::stopping;
            asked.answer({true, cut_short
                                    ? "stopped; what still ran was ended (--stop-timeout, or a stop at once)"
                                    : "stopped"});
        }
    } catch (const std::exception&) {
        // Out of memory: they see the end of this process.
    }
}

}  // namespace cede::pm
