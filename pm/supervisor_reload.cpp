// SPDX-License-Identifier: Apache-2.0
// One generation of children takes the place of another (docs/design/0008-reload.md).
#include <algorithm>
#include <signal.h>
#include <utility>

#include "pm/log.h"
#include "pm/process_title.h"
#include "pm/supervisor.h"

namespace cede::pm {

using children::ChildState;

namespace {

// How many successors may be on their way at once.
constexpr unsigned most_successors_starting = 16;
// What a child that was told to end gets to hear it.
constexpr auto longest_farewell = std::chrono::seconds{1};
// What a dismissed zygote gets to end by itself.
constexpr auto zygote_patience = std::chrono::seconds{5};

long long milliseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

ZygoteHost* Supervisor::find_zygote(std::uint32_t id) noexcept {
    return find_zygote_if([id](const ZygoteHost& zygote) { return zygote.id() == id; });
}

ZygoteHost* Supervisor::find_zygote_by_pid(pid_t pid) noexcept {
    return find_zygote_if([pid](const ZygoteHost& zygote) { return zygote.pid() == pid; });
}

ZygoteHost* Supervisor::find_zygote_of(std::uint32_t generation) noexcept {
    return find_zygote_if(
        [generation](const ZygoteHost& zygote) { return zygote.generation() == generation; });
}

void Supervisor::for_all_zygotes(void (ZygoteHost::*action)() noexcept) noexcept {
    (void)find_zygote_if([action](ZygoteHost& zygote) {
        (zygote.*action)();
        return false;
    });
}

void Supervisor::reload(std::string_view cause, Answer answer) {
    if (ending()) {
        answer({false, "cede is stopping"});
        return;
    }
    if (reload_.stage == Reload::Stage::replacing && reload_.stalled) {
        reload_.stage = Reload::Stage::none;  // the next may have what that one lacks
    }
    const bool too_early = course_ == Course::starting && zygote_->phase() != ZygoteHost::Phase::ready;
    if (too_early || reload_.stage != Reload::Stage::none) {
        reload_.next_cause = cause;
        reload_.answers_of_next.push_back(std::move(answer));
        return;
    }
    reload_.answers.push_back(std::move(answer));
    begin_reload(cause);
}

void Supervisor::begin_reload(std::string_view cause) {
    const auto now = Clock::now();
    log(LogLevel::notice, "reloading ({})", cause);
    service_manager_.reloading();
    reload_.begun = reload_.last_progress = now;
    reload_.credits = reload_.replaced = 0;
    reload_.by_force = reload_.stalled = false;
    reload_.stage = Reload::Stage::loading;
    auto fresh = refresh_(config_);
    if (!fresh) {
        fail_reload(fresh.error().message);
        return;
    }
    reload_.kept = std::move(fresh->kept);
    publish_title(fresh->config.title);
    next_zygote_ = make_zygote(std::move(fresh->start));
    reload_.config = std::move(fresh->config);
    std::string explanation;
    if (!launch(*next_zygote_, reload_.config, explanation)) {
        fail_reload(fmt::format("{}: {}", next_zygote_->program(), explanation));
    }
}

// One child of it first: what goes wrong with that one would with all others.
void Supervisor::prove_next() {
    const auto running = zygote_->protocol();
    if (running != protocol::Protocol::unknown && next_zygote_->protocol() != running) {
        fail_reload(
            fmt::format("{} speaks {}, and the running children {}, as do the connections that are "
                        "open; restart cede instead",
                        next_zygote_->program(), protocol::name_of(next_zygote_->protocol()),
                        protocol::name_of(running)));
        return;
    }
    const auto slot = order_child(*next_zygote_, reload_.config);
    if (!slot) {
        fail_reload("no first child could be ordered; see the log");
        return;
    }
    reload_.stage = Reload::Stage::proving;
    reload_.trial = *slot;
    pool_.at(*slot).successor = true;
}

void Supervisor::on_successor_ready(std::uint32_t slot) {
    if (reload_.stage == Reload::Stage::proving && slot == reload_.trial) {
        commit_reload();
    }
    const bool succeeds = std::exchange(pool_.at(slot).successor, false);
    if (reload_.stage == Reload::Stage::replacing) {
        reload_.last_progress = Clock::now();
        reload_.stalled = false;
        reload_.credits += succeeds ? 1U : 0U;
        roll();
    }
}

void Supervisor::on_vacated(std::uint32_t slot, const std::string& why) {
    if (reload_.stage == Reload::Stage::proving && slot == reload_.trial) {
        fail_reload(fmt::format("its first child: {}", why));
    } else {
        roll();
    }
}

// From here on there is no way back: the old zygote goes.
void Supervisor::commit_reload() {
    reload_.stage = Reload::Stage::replacing;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        Pool::Child& child = pool_.at(slot);
        child.outdated = child.phase != Pool::Phase::vacant && slot != reload_.trial;
        child.successor = slot == reload_.trial;
        reload_.outdated_left = reload_.outdated_left || child.superseded();
    }
    dismiss_zygote(std::exchange(zygote_, std::move(next_zygote_)));
    zygote_respawn_.succeeded();
    child_respawn_.succeeded();
    take_over_config(std::move(reload_.config));
    dispatcher_.speak(zygote_->protocol());
}

void Supervisor::take_over_config(Config config) {
    const bool log_changes = config.log != config_.log || config.log_format != config_.log_format;
    config_ = std::move(config);
    set_log_level(config_.log_level);
    if (log_changes) {
        if (const auto opened = open_log(config_); !opened) {
            log(LogLevel::error, "{}; the log stays where it is", opened.error().message);
        }
    }
    show_title("supervisor", config_.title);
    sizing_.set(*sizes_of(config_));
    overtime_.set_limit(config_.request_timeout);
    raise_open_files(config_);
    dispatcher_.set_room(room_within_limit(config_));
    for (Listener& listener : listeners_) {
        if (!config_.backlog_auto) {
            listener.set_backlog(config_.backlog);
        }
    }
    publish_settings();
}

// As many outdated children go as successors have become ready, so that there are never fewer.
void Supervisor::roll() {
    if (reload_.stage != Reload::Stage::replacing || ending()) {
        return;
    }
    while (reload_.credits > 0 && retire_outdated()) {
        --reload_.credits;
        ++reload_.replaced;
    }
    unsigned outdated = 0;
    unsigned on_the_way = 0;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        const bool here = child.phase != Pool::Phase::vacant && !child.leaving;
        outdated += here && child.outdated ? 1U : 0U;
        on_the_way += here && child.successor ? 1U : 0U;
    }
    if (outdated == 0) {
        if (!any_superseded_has_time() || Clock::now() - reload_.last_progress > longest_farewell) {
            finish_reload();
        }
        return;
    }
    const unsigned step = std::clamp(config_.children / 4, 1U,
                                     std::min(most_successors_starting, sizing_.sizes().most_starting));
    const unsigned wanted = std::min(step, outdated);
    while (on_the_way < wanted && Clock::now() >= child_respawn_.earliest() &&
           zygote_->phase() == ZygoteHost::Phase::ready) {
        const auto slot = order_child(*zygote_, config_);
        if (!slot) {
            break;
        }
        pool_.at(*slot).successor = true;
        ++on_the_way;
    }
}

// Told to end, but it may not have heard: it could still take one request by the former configuration.
bool Supervisor::any_superseded_has_time() {
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const ChildState state = scoreboard_.slot(slot).state.load();
        if (pool_.at(slot).superseded() && has_time(state)) {
            return true;
        }
    }
    return false;
}

// Whoever has nothing to do first, for the others end only after their request.
bool Supervisor::retire_outdated() {
    std::optional<std::uint32_t> chosen;
    bool chosen_has_time = false;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (!child.outdated || !child.ready || child.leaving || child.phase != Pool::Phase::alive) {
            continue;
        }
        const ChildState state = scoreboard_.slot(slot).state.load();
        const bool idle = has_time(state);
        if (!chosen || (idle && !chosen_has_time)) {
            chosen = slot;
            chosen_has_time = idle;
        }
    }
    if (chosen) {
        retire(*chosen, "replaced by a reload");
        reload_.outdated_left = true;
    }
    return chosen.has_value();
}

void Supervisor::tend_reload(Clock::time_point now) {
    for (const auto& zygote : former_zygotes_) {
        if (now - zygote->dismissed_at() > zygote_patience) {
            zygote->kill();
        }
    }
    if (reload_.outdated_left) {
        end_outdated(now);
    }
    if (pool_.size() > config_.children && reload_.stage == Reload::Stage::none) {
        pool_.resize(config_.children);
        scoreboard_.control().slots_used = pool_.size();
    }
    check_children_wanted(now);
    switch (reload_.stage) {
        case Reload::Stage::loading:
            if (const std::string why = next_zygote_->overdue(now, reload_.config.start_timeout);
                !why.empty()) {
                fail_reload(why);
            }
            break;
        case Reload::Stage::replacing:
            if (!reload_.stalled && now - reload_.last_progress > config_.start_timeout) {
                reload_.stalled = true;
                const std::string text =
                    fmt::format("the new children do not become ready; {} of the old ones were replaced",
                                reload_.replaced);
                log(LogLevel::error, "the reload makes no progress: {}", text);
                answer_all({false, text + ", the others go on; see the log"});
            }
            if (reload_.stalled && !reload_.next_cause.empty()) {
                reload_.stage = Reload::Stage::none;
                begin_next_reload();
                break;
            }
            roll();
            break;
        case Reload::Stage::proving:  // end_slow_starts()
        case Reload::Stage::none:
            break;
    }
}

void Supervisor::end_outdated(Clock::time_point now) {
    reload_.outdated_left = false;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (!child.superseded() || child.phase != Pool::Phase::alive) {
            continue;
        }
        reload_.outdated_left = true;
        if (reload_.by_force) {
            kill_child(slot, SIGKILL);
        } else if (config_.reload_timeout.count() > 0 && now - child.leaving_since > config_.reload_timeout) {
            log(LogLevel::warning, "{} still runs a request of before the reload, killing it ({})",
                pool_.identity(slot), where(config_, "reload-timeout"));
            kill_child(slot, SIGKILL);
        }
    }
}

void Supervisor::finish_reload() {
    unsigned still_running = 0;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const ChildState state = scoreboard_.slot(slot).state.load();
        const bool runs =
            state == ChildState::reading || state == ChildState::busy || state == ChildState::finishing;
        still_running += pool_.at(slot).superseded() && runs ? 1U : 0U;
    }
    std::string text =
        fmt::format("reloaded as generation {} after {} ms, children replaced: {}", zygote_->generation(),
                    milliseconds(Clock::now() - reload_.begun), reload_.replaced);
    if (still_running > 0) {
        text += fmt::format(", of which {} still have a request to end", still_running);
    }
    if (!reload_.kept.empty()) {
        text += fmt::format("; not changed without a restart: {}", fmt::join(reload_.kept, " "));
        log(LogLevel::warning, "{}", text);
    } else {
        log(LogLevel::notice, "{}", text);
    }
    end_reload({true, text});
}

void Supervisor::fail_reload(const std::string& why) {
    const std::string text =
        fmt::format("the reload failed, generation {} goes on: {}", zygote_->generation(), why);
    log(LogLevel::error, "{}", text);
    if (reload_.stage == Reload::Stage::proving) {
        pool_.at(reload_.trial).condemned = true;
        kill_child(reload_.trial, SIGKILL);
    }
    if (next_zygote_) {
        next_zygote_->kill();
        dismiss_zygote(std::move(next_zygote_));
    }
    end_reload({false, text});
}

void Supervisor::end_reload(const Outcome& outcome) {
    reload_.stage = Reload::Stage::none;
    totals_.events.reloads += outcome.good ? 1U : 0U;
    last_reload_ = Status::Reload{std::chrono::system_clock::now(), Clock::now() - reload_.begun,
                                  outcome.good, outcome.text};
    if (course_ == Course::serving) {
        service_manager_.ready(outcome.good ? summary() : outcome.text);
    }
    answer_all(outcome);
    begin_next_reload();
}

void Supervisor::answer_all(const Outcome& outcome) {
    for (const Answer& answer : std::exchange(reload_.answers, {})) {
        answer(outcome);
    }
}

void Supervisor::begin_next_reload() {
    if (reload_.next_cause.empty() || ending()) {
        return;
    }
    reload_.answers = std::exchange(reload_.answers_of_next, {});
    begin_reload(std::exchange(reload_.next_cause, {}));
}

void Supervisor::abandon_reload() {
    reload_.stage = Reload::Stage::none;
    reload_.next_cause.clear();
    std::ranges::move(std::exchange(reload_.answers_of_next, {}), std::back_inserter(reload_.answers));
    answer_all({false, "cede is stopping"});
}

void Supervisor::dismiss_zygote(std::unique_ptr<ZygoteHost> zygote) {
    if (zygote->pid() > 0) {
        zygote->dismiss();
        former_zygotes_.push_back(std::move(zygote));
    }
}

}  // namespace cede::pm
