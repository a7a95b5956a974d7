// SPDX-License-Identifier: Apache-2.0
#include "pm/supervisor.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "pm/log.h"
#include "pm/process_title.h"

namespace cede::pm {

using children::RunMode;

namespace {

constexpr auto longest_turn = std::chrono::milliseconds{10};
constexpr auto start_check_interval = std::chrono::milliseconds{100};
constexpr auto upgrade_check_interval = std::chrono::milliseconds{10};
constexpr auto slow_reader_interval = std::chrono::milliseconds{50};

}  // namespace

Supervisor::Supervisor(const Config& config, std::span<Listener> listeners,
                       children::ScoreboardMap scoreboard, Start start, Refresh refresh, Self self,
                       Handoff::Ends handoff)
    : config_{config},
      listeners_{listeners},
      scoreboard_{std::move(scoreboard)},
      pool_{config.children},
      dispatcher_{poller_,
                  scoreboard_,
                  pool_,
                  listeners_,
                  room_within_limit(config),
                  config.give_up == GiveUp::park ? children::GiveUpBy::parking : children::GiveUpBy::closing,
                  std::move(handoff)},
      refresh_{std::move(refresh)},
      zygote_{make_zygote(std::move(start))},
      self_{std::move(self)},
      service_manager_{environment_of(own_environment()), getpid(), config.ready_fd},
      sizing_{*sizes_of(config)},
      overtime_{config.request_timeout} {
    scoreboard_.control().listeners_inherited = listeners.front().created ? 0 : 1;
    publish_settings();
}

// Before a zygote starts, which reads it then.
void Supervisor::publish_title(std::string_view title) noexcept {
    auto& shown = scoreboard_.control().title;
    const std::string_view text = cut(title, sizeof shown - 1);
    std::ranges::fill(shown, '\0');
    std::ranges::copy(text, shown);
}

void Supervisor::publish_settings() {
    children::Control& control = scoreboard_.control();
    control.keepalive_limit = config_.keepalive_limit ? config_.keepalive_limit->children(config_.children)
                                                      : children::no_keepalive_limit;
    control.protocol = config_.protocol;
    const auto in_ms = [](std::chrono::milliseconds time) {
        return static_cast<std::uint32_t>(time.count());
    };
    control.first_byte_timeout_ms = in_ms(config_.first_byte_timeout);
    control.read_timeout_ms = in_ms(config_.read_timeout);
    control.body_timeout_ms = in_ms(config_.body_timeout);
    control.body_rate = static_cast<std::uint32_t>(std::min<std::uint64_t>(config_.body_rate, UINT32_MAX));
    control.write_timeout_ms = in_ms(config_.write_timeout);
    control.linger_timeout_ms = in_ms(config_.linger_timeout);
    control.max_wait_ms = in_ms(config_.max_wait);
    control.run_abandoned = config_.run_abandoned ? 1 : 0;
    control.pass_queue_time = config_.pass_queue_time ? 1 : 0;
    control.slots_used = pool_.size();
    dispatcher_.set_give_up_by(config_.give_up == GiveUp::park ? children::GiveUpBy::parking
                                                               : children::GiveUpBy::closing);
    dispatcher_.set_patience({{config_.max_wait, config_.overload, config_.run_abandoned, config_.ping_path,
                               config_.probe_reserve > 0},
                              {config_.read_timeout, config_.body_timeout, config_.run_abandoned},
                              config_.first_byte_timeout});
}

int Supervisor::run() {
    // Asio owns a duplicate; the poller keeps its own.
    poller_handle_.assign(fcntl(poller_.fd(), F_DUPFD_CLOEXEC, 0));
    watch_signals();
    watch_poller();
    // Some may have come before we could act on them, and wait.
    hold_all_signals(false);
    if (resumed_) {
        reap();
    } else {
        start_zygote();
    }
    arm_timer();
    loop_.run();
    return exit_status_;
}

// --- what happens ---

void Supervisor::watch_poller() {
    poller_handle_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                              [this](const boost::system::error_code& error) {
                                  if (!error) {
                                      on_events();
                                      watch_poller();
                                  }
                              });
}

void Supervisor::on_events() {
    // Signals and timers wait meanwhile.
    const auto longest = Clock::now() + longest_turn;
    do {
        for (const Poller::Event& event : poller_.poll()) {
            switch (event.tag.kind) {
                case Poller::Kind::zygote:
                    if (ZygoteHost* const zygote = find_zygote(event.tag.index)) {
                        zygote->on_readable();
                    }
                    break;
                case Poller::Kind::child:
                    on_child_readable(event);
                    break;
                case Poller::Kind::output:
                    output_.on_event(event);
                    break;
                default:
                    dispatcher_.on_event(event);
                    break;
            }
        }
        dispatcher_.settle();
        output_.settle(Clock::now());
    } while (dispatcher_.rest() && Clock::now() < longest);
    end_drain_if_empty();
    // Counting asks the kernel who waits: not at each event when there is no place for anybody more.
    if (config_.pool_mode != PoolMode::fixed && dispatcher_.anybody_waits() &&
        pool_.count_present() < config_.children) {
        resize();
    }
    arm_timer();
}

void Supervisor::watch_signals() {
    signal(SIGPIPE, SIG_IGN);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2}) {
        signals_.add(number);
    }
    struct Waiter {
        Supervisor* self;
        void operator()(const boost::system::error_code& error, int number) const {
            if (!error) {
                self->signals_.async_wait(*this);
                self->on_signal(number);
            }
        }
    };
    signals_.async_wait(Waiter{this});
}

void Supervisor::on_signal(int number) {
    switch (number) {
        case SIGCHLD:
            reap();
            break;
        case SIGTERM:
        case SIGINT:
            log(LogLevel::notice, "stopping at once ({})", number == SIGTERM ? "SIGTERM" : "SIGINT");
            stop();
            break;
        case SIGQUIT:
            if (course_ == Course::draining) {
                log(LogLevel::notice, "second SIGQUIT: stopping at once");
                stop();
            } else {
                drain("SIGQUIT");
            }
            break;
        default:
            // After the signals that came with it: OpenLiteSpeed sends SIGUSR1 right behind SIGTERM.
            boost::asio::post(loop_, [this, number] {
                if (course_ == Course::stopping) {
                    return;
                }
                if (number == SIGUSR1) {
                    (void)reopen_log();
                } else {
                    reload(number == SIGHUP ? "SIGHUP" : "SIGUSR2", [](const Outcome&) {});
                }
            });
            break;
    }
    arm_timer();
}

// One timer, for whatever comes first.
void Supervisor::arm_timer() {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    const auto consider = [&next](Clock::time_point at) { next = std::min(next, at); };
    consider(now + dispatcher_.check_interval());
    consider(overtime_.due());
    consider(service_manager_.due());
    consider(output_.due());
    consider(queue_due());
    if (log_waits()) {
        consider(now + slow_reader_interval);
    }
    if (ending()) {
        consider(stop_deadline_);
    } else if (zygote_->phase() == ZygoteHost::Phase::down) {
        consider(zygote_respawn_.earliest());
    } else if (zygote_->phase() != ZygoteHost::Phase::ready) {
        consider(now + start_check_interval);
    } else {
        if (pool_.any_starting()) {
            consider(now + start_check_interval);
        }
        if (config_.pool_mode == PoolMode::fixed && pool_.count_present() < config_.children) {
            consider(std::max(child_respawn_.earliest(), now + start_check_interval));
        }
        consider(sizing_.due(now));
        if (config_.recycling.any()) {
            consider(recycle_due_);
        }
    }
    if (reload_.stage != Reload::Stage::none || children_wanted_ || !former_zygotes_.empty()) {
        consider(now + start_check_interval);
    }
    if (reload_.outdated_left) {
        consider(now + std::chrono::seconds{1});
    }
    if (config_.stall_timeout.count() > 0) {
        consider(now + Standstill::interval);
    }
    if (upgrade_.stage != Upgrade::Stage::none) {
        consider(now + upgrade_check_interval);
    }
    // Moving a timer costs; one that is set for an earlier time only finds nothing to do and is set again.
    if (next >= timer_set_for_) {
        return;
    }
    timer_set_for_ = next;
    timer_.expires_at(next);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            timer_set_for_ = Clock::time_point::max();
            on_timer();
            arm_timer();
        }
    });
}

void Supervisor::on_timer() {
    const auto now = Clock::now();
    output_.tend(now);
    tend_log();
    tend_service_manager(now);
    if (now - memory_looked_at_ >= std::chrono::seconds{1}) {
        memory_looked_at_ = now;
        memory_events_.tick();
    }
    dispatcher_.check();
    tend_queue(Clock::now());
    end_overlong(now);
    end_drain_if_empty();
    if (ending() && now >= stop_deadline_) {
        if (course_ == Course::draining) {
            log(LogLevel::warning, "requests still run after the stop timeout; ending them (--stop-timeout)");
        }
        kill_all();
        return;
    }
    if (course_ != Course::starting && course_ != Course::serving) {
        return;
    }
    watch_for_standstill(now);
    tend_reload(now);
    tend_upgrade(now);
    if (zygote_->phase() == ZygoteHost::Phase::down) {
        if (now >= zygote_respawn_.earliest()) {
            start_zygote();
        }
    } else if (const std::string why = zygote_->overdue(now, config_.start_timeout); !why.empty()) {
        zygote_->kill();
        fail_start(why);
    } else {
        end_slow_starts(now);
        recycle(now);
        resize();
    }
}

}  // namespace cede::pm
