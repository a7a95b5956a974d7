// SPDX-License-Identifier: Apache-2.0
#include "pm/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "children/fd_passing.h"
#include "pm/log.h"

namespace cede::pm {

using children::ChildReport;
using children::ChildSays;
using children::ChildState;
using children::RunMode;
using children::ZygoteSays;

namespace {

constexpr std::uint32_t most_forks_in_flight = 32;
constexpr auto longest_turn = std::chrono::milliseconds{10};
constexpr auto start_check_interval = std::chrono::milliseconds{100};

// What the request has already is the agent's file, which stays last (zygote_protocol.h).
children::SpawnRequest with_descriptors(children::SpawnRequest request, std::span<const Listener> listeners,
                                        int scoreboard, int handoff) {
    request.stdin_fd = listeners.front().fd.get();
    std::vector<int> descriptors{scoreboard, handoff};
    for (const Listener& listener : listeners) {
        descriptors.push_back(listener.fd.get());
    }
    request.inherited_fds.insert(request.inherited_fds.begin(), descriptors.begin(), descriptors.end());
    return request;
}

long long microseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

Supervisor::Supervisor(const Config& config, std::span<Listener> listeners,
                       children::ScoreboardMap scoreboard, children::SpawnRequest request,
                       Dispatcher::Room room)
    : config_{config},
      listeners_{listeners},
      scoreboard_{std::move(scoreboard)},
      pool_{config.children},
      dispatcher_{poller_,
                  scoreboard_,
                  pool_,
                  listeners_,
                  room,
                  config.give_up == GiveUp::park ? children::GiveUpBy::parking : children::GiveUpBy::closing},
      zygote_{
          poller_,
          with_descriptors(std::move(request), listeners, scoreboard_.fd(), dispatcher_.handoff_receiver()),
          {[this] { on_zygote_ready(); },
           [this](const children::ZygoteReport& report) { on_forked(report); }}},
      overtime_{config.request_timeout} {
    children::Control& control = scoreboard_.control();
    if (config.keepalive_limit) {
        control.keepalive_limit = config.keepalive_limit->children(config.children);
    }
    control.max_requests = config.max_requests;
    control.protocol = config.protocol;
}

int Supervisor::run() {
    // Asio owns a duplicate; the poller keeps its own.
    poller_handle_.assign(fcntl(poller_.fd(), F_DUPFD_CLOEXEC, 0));
    watch_signals();
    watch_poller();
    start_zygote();
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
                    zygote_.on_readable();
                    break;
                case Poller::Kind::child:
                    on_child_readable(event);
                    break;
                default:
                    dispatcher_.on_event(event);
                    break;
            }
        }
        dispatcher_.settle();
    } while (dispatcher_.rest() && Clock::now() < longest);
    end_drain_if_empty();
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
                if (course_ != Course::stopping) {
                    log(LogLevel::notice, "{} has no meaning here and is ignored (docs/signals.md)",
                        strsignal(number));
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
    if (course_ == Course::draining || course_ == Course::stopping) {
        consider(stop_deadline_);
    } else if (zygote_.phase() == ZygoteHost::Phase::down) {
        consider(zygote_respawn_.earliest());
    } else if (zygote_.phase() != ZygoteHost::Phase::ready) {
        consider(now + start_check_interval);
    } else if (pool_.any_vacant()) {
        consider(std::max(child_respawn_.earliest(), now + start_check_interval));
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
    dispatcher_.check();
    end_overlong(now);
    end_drain_if_empty();
    if ((course_ == Course::draining || course_ == Course::stopping) && now >= stop_deadline_) {
        if (course_ == Course::draining) {
            log(LogLevel::warning, "requests still run after the stop timeout; ending them (--stop-timeout)");
        }
        kill_all();
        return;
    }
    if (course_ != Course::starting && course_ != Course::serving) {
        return;
    }
    if (zygote_.phase() == ZygoteHost::Phase::down) {
        if (now >= zygote_respawn_.earliest()) {
            start_zygote();
        }
    } else if (const std::string why = zygote_.overdue(now, config_.start_timeout); !why.empty()) {
        zygote_.kill();
        fail_start(why);
    } else {
        fill_vacancies();
    }
}

// --- zygote and children ---

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
    fill_vacancies();
}

void Supervisor::fill_vacancies() {
    if ((course_ != Course::starting && course_ != Course::serving) ||
        zygote_.phase() != ZygoteHost::Phase::ready || Clock::now() < child_respawn_.earliest()) {
        return;
    }
    std::uint32_t in_flight = pool_.count(Pool::Phase::ordered);
    while (in_flight < most_forks_in_flight) {
        const auto slot = pool_.any_vacant();
        if (!slot || !order_child(*slot)) {
            return;
        }
        ++in_flight;
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
    const Poller::Tag tag{Poller::Kind::child, slot, pool_.at(slot).age};
    if (!zygote_.order(slot, theirs.get()) || !poller_.add(ours.get(), EPOLLIN, tag)) {
        scoreboard_.reset(slot, ChildState::empty);
        child_respawn_.refused(Clock::now());
        return false;
    }
    pool_.order(slot, zygote_.generation(), std::move(ours), Clock::now());
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
    const auto early = std::ranges::find(early_exits_, child.pid, &EarlyExit::pid);
    if (early != early_exits_.end()) {
        const int status = early->status;
        early_exits_.erase(early);
        on_child_exit(report.slot, status);
    } else if (child.ready) {
        on_child_ready(report.slot);
    }
    fill_vacancies();
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
    if (course_ == Course::starting && pool_.count_ready() == pool_.size()) {
        course_ = Course::serving;
        zygote_respawn_.succeeded();
        log(LogLevel::notice, "ready children={}", pool_.size());
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
