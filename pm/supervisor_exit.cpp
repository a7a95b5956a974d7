// SPDX-License-Identifier: Apache-2.0
// How processes end, and how the supervisor itself does.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pm/log.h"
#include "pm/supervisor.h"

namespace cede::pm {

using children::ChildState;
using children::RunMode;

namespace {

// What a running request gets in a stop at once.
constexpr auto fast_stop_grace = std::chrono::milliseconds{500};
constexpr std::size_t most_early_exits = 64;

// `begun`: how many requests it had begun when the one that is meant, the latest, was seen to run. To the one
// thread that runs PHP, whatever others an extension has.
void ask_to_end_request(pid_t pid, std::uint64_t begun) noexcept {
    siginfo_t info{};
    info.si_signo = children::overtime_signal;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = static_cast<int>(begun);
    syscall(SYS_rt_tgsigqueueinfo, pid, pid, children::overtime_signal, &info);
}

// Keeps new connections from being queued while those that are queued can still be accepted: for TCP all
// packets to the listening socket itself are dropped (socket(7), SO_ATTACH_FILTER), so that the peer's
// connect waits for whoever listens next.
void refuse_new(Listener& listener) noexcept {
    if (!listener.created) {
        return;  // somebody else's queue: the next one to adopt it serves what comes
    }
    if (listener.kind == Listener::Kind::unix_stream) {
        listener.remove_socket_file();
        return;
    }
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &drop};
    setsockopt(listener.fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

}  // namespace

void Supervisor::reap() {
    // SIGCHLD tells that there is at least one, not how many.
    for (;;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            break;
        }
        if (ZygoteHost* const zygote = find_zygote_by_pid(pid)) {
            on_zygote_exit(*zygote, status);
        } else if (pid == upgrade_.check) {
            on_upgrade_checked(status);
        } else if (const auto slot = pool_.find(pid)) {
            on_child_exit(*slot, status);
        } else if (pool_.count(Pool::Phase::ordered) > 0) {
            if (early_exits_.size() == most_early_exits) {
                early_exits_.erase(early_exits_.begin());
            }
            early_exits_.push_back({pid, status});
        } else {
            log(LogLevel::debug, "pid={}, left behind by a script, has ended", pid);
        }
    }
    resize();
    dispatcher_.settle();
    finish_if_empty();
}

void Supervisor::on_zygote_exit(ZygoteHost& zygote, int status) {
    const bool was_ready = zygote.phase() == ZygoteHost::Phase::ready;
    const pid_t pid = zygote.pid();
    const std::string why = zygote.on_exit(status);
    end_output(zygote, pid);
    settle_orders_of_dead_zygote(zygote.generation());
    if (&zygote != zygote_.get() && &zygote != next_zygote_.get()) {
        std::erase_if(former_zygotes_, [&zygote](const auto& former) { return former.get() == &zygote; });
        return;
    }
    if (ending() || zygote.phase() == ZygoteHost::Phase::ready) {
        return;
    }
    if (&zygote == next_zygote_.get()) {
        fail_reload(why);
        return;
    }
    const auto now = Clock::now();
    zygote_respawn_.ended(now, now - zygote.started_at(), false);
    log(LogLevel::error, "zygote gen={} pid={}: {}", zygote.generation(), pid, why);
    if (course_ == Course::starting && !was_ready) {
        exit_status_ = Error::failure;
        stop();
    }
}

// Its last children may be alive, or about to be, although it could not say so. Whoever still holds the other
// end of an order's channel is one; when nobody does, the channel ends.
void Supervisor::settle_orders_of_dead_zygote(std::uint32_t generation) {
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        if (pool_.at(slot).phase != Pool::Phase::ordered || pool_.at(slot).generation != generation) {
            continue;
        }
        pool_.at(slot).abandoned = true;
        if (!adopt(slot) && !pool_.at(slot).channel) {
            on_channel_end(slot);  // which was noticed before the zygote's death was
        }
    }
}

// Whoever says what the pid of a new child is may be lying: it is signalled with our rights.
bool Supervisor::is_child_of_ours(pid_t pid) const noexcept {
    siginfo_t info{};
    if (pid <= 0 || pool_.find(pid) || pid == upgrade_.check) {
        return false;
    }
    return std::ranges::find(early_exits_, pid, &EarlyExit::pid) != early_exits_.end() ||
           waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void Supervisor::kill_child(std::uint32_t slot, int number) noexcept {
    Pool::Child& child = pool_.at(slot);
    if (child.phase == Pool::Phase::alive && child.pid > 0) {
        child.killed = child.killed || number == SIGKILL;
        kill(child.pid, number);
    }
}

// Without an order nobody can turn out to be one of ours.
void Supervisor::forget_early_exits() noexcept {
    if (pool_.count(Pool::Phase::ordered) == 0) {
        early_exits_.clear();
    }
}

// The slot has the pid, but a slot is not to be trusted: only a process that is really ours is adopted.
bool Supervisor::adopt(std::uint32_t slot) {
    Pool::Child& child = pool_.at(slot);
    const auto pid = static_cast<pid_t>(scoreboard_.slot(slot).pid.load());
    if (!is_child_of_ours(pid)) {
        return false;
    }
    child.pid = pid;
    on_known(slot);
    return true;
}

// Who had a pid only from now on may have ended, or become ready, before.
void Supervisor::on_known(std::uint32_t slot) {
    on_alive(slot);
    const auto early = std::ranges::find(early_exits_, pool_.at(slot).pid, &EarlyExit::pid);
    if (early != early_exits_.end()) {
        const int status = early->status;
        early_exits_.erase(early);
        on_child_exit(slot, status);
    } else if (pool_.at(slot).ready) {
        on_child_ready(slot);
    }
    forget_early_exits();
}

void Supervisor::drop_channel(std::uint32_t slot) noexcept {
    Pool::Child& child = pool_.at(slot);
    if (child.channel) {
        poller_.remove(child.channel.get());
        child.channel.reset();
    }
}

void Supervisor::on_channel_end(std::uint32_t slot) {
    drop_channel(slot);
    Pool::Child& child = pool_.at(slot);
    if (child.phase == Pool::Phase::ordered && child.abandoned) {
        vacate(slot, "it ended before it was ready");
        resize();
        finish_if_empty();
    }
}

void Supervisor::on_child_exit(std::uint32_t slot, int status) {
    const Pool::Child& child = pool_.at(slot);
    const auto now = Clock::now();
    const std::string how =
        WIFSIGNALED(status)
            ? fmt::format("was killed by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)),
                          WCOREDUMP(status) ? ", core dumped" : "")
            : fmt::format("ended with exit status {}", WEXITSTATUS(status));
    end_output(slot);  // its last words stand before its end
    // Its own, or in a pool that is short of memory a neighbour's.
    const bool short_of_memory =
        WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !child.killed && memory_events_.killed_lately();
    const children::Slot& books = scoreboard_.slot(slot);
    const std::uint64_t requests = books.requests.load();
    const bool expected = ending();
    const std::string served = fmt::format(
        "after {} requests on {} new and {} parked connections, {} parked and {} closed by itself", requests,
        books.accepted.load(), books.taken.load(), books.parked.load(), books.closed.load());
    log(WIFSIGNALED(status) && !expected ? LogLevel::warning : LogLevel::info, "{} {}{} {}",
        pool_.identity(slot), how,
        short_of_memory ? ", most likely by the kernel for memory (the cgroup's memory.max)," : "", served);
    totals_.events.killed_for_memory += short_of_memory ? 1U : 0U;
    // SIGKILL comes from outside, an administrator or the kernel short of memory: no failed start of ours.
    const bool killed = child.ready && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    child_respawn_.ended(now, child.ready ? now - child.ready_at : Clock::duration::zero(),
                         requests > 0 || killed || child.leaving || child.overlong);
    count_last(slot, status);
    vacate(slot, how);
    dispatcher_.wake_later();  // it may have been woken for a connection, and died on the way
}

// `why`: how its process ended, or why there was none.
void Supervisor::vacate(std::uint32_t slot, const std::string& why) {
    end_output(slot);
    drop_channel(slot);
    scoreboard_.reset(slot, ChildState::empty);
    pool_.vacate(slot);
    forget_early_exits();
    on_vacated(slot, why);
}

void Supervisor::end_overlong(Clock::time_point now) {
    if (now < overtime_.due()) {
        return;
    }
    std::vector<Overtime::View> views;
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        const children::Slot& books = scoreboard_.slot(slot);
        const ChildState state = books.state.load();
        const bool runs = state == ChildState::busy ||
                          (state == ChildState::finishing && config_.request_timeout_track_finished);
        views.push_back({child.pid, child.phase == Pool::Phase::alive && runs, books.begun.load()});
    }
    for (const Overtime::Ending ending : overtime_.check(views, now)) {
        const bool forced = ending.how == Overtime::How::force;
        if (forced) {
            log(LogLevel::warning, "{} still runs its request, killing it ({})", pool_.identity(ending.slot),
                where(config_, "request-timeout"));
        } else {
            log(LogLevel::warning, "{} request runs longer than {} s, ending it ({})",
                pool_.identity(ending.slot), std::chrono::duration<double>{config_.request_timeout}.count(),
                where(config_, "request-timeout"));
        }
        Pool::Child& child = pool_.at(ending.slot);
        child.overlong = true;
        if (forced) {
            kill_child(ending.slot, SIGKILL);
        } else {
            ask_to_end_request(child.pid, views[ending.slot].requests);
        }
    }
}

// --- the supervisor's own end ---

void Supervisor::follow(children::UniqueFd parent) {
    parent_fd_ = parent.get();
    parent_.assign(parent.release());
    parent_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                           if (!error) {
                               drain("the parent process has ended, and LSAPI_PPID_NO_CHECK is not set");
                               arm_timer();
                           }
                       });
}

void Supervisor::drain(std::string_view cause) {
    if (ending()) {
        return;
    }
    log(LogLevel::notice, "stopping after what waits and runs is served ({}), within {} ms", cause,
        config_.stop_timeout.count());
    course_ = Course::draining;
    service_manager_.stopping();
    stop_deadline_ = Clock::now() + config_.stop_timeout;
    for (Listener& listener : listeners_) {
        refuse_new(listener);
    }
    dispatcher_.begin_drain();
    dispatcher_.settle();
    end_drain_if_empty();
    for_all_zygotes(&ZygoteHost::dismiss);
    abandon_reload();
    abandon_upgrade();
    finish_if_empty();
}

// Children end as soon as they are told, so not before all that waits has been moved to them.
void Supervisor::end_drain_if_empty() {
    if (course_ == Course::draining && dispatcher_.drained() &&
        scoreboard_.control().mode.load() == RunMode::serve) {
        tell_all(RunMode::drain);
    }
}

void Supervisor::stop() {
    if (course_ == Course::stopping) {
        return;
    }
    course_ = Course::stopping;
    service_manager_.stopping();
    stop_deadline_ = Clock::now() + fast_stop_grace;
    for (Listener& listener : listeners_) {
        listener.remove_socket_file();
    }
    tell_all(RunMode::stop);
    for_all_zygotes(&ZygoteHost::kill);
    abandon_reload();
    abandon_upgrade();
    finish_if_empty();
}

void Supervisor::tell_all(RunMode mode) noexcept {
    scoreboard_.control().mode.store(mode);
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        pool_.at(slot).leaving = true;
        Dispatcher::ring(pool_.at(slot));
    }
}

// Again and again until all have gone: a child may be forked at this very moment.
void Supervisor::kill_all() noexcept {
    course_ = Course::stopping;
    stop_deadline_ = Clock::now() + fast_stop_grace;
    for_all_zygotes(&ZygoteHost::kill);
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        kill_child(slot, SIGKILL);
    }
}

// A process between zygote and child may be about to end. Programs that scripts have left behind are not
// waited for.
void Supervisor::reap_stragglers() noexcept {
    constexpr int longest_ms = 20;
    for (int waited = 0; waited < longest_ms && waitpid(-1, nullptr, WNOHANG) >= 0; ++waited) {
        poll(nullptr, 0, 1);
    }
}

void Supervisor::finish_if_empty() {
    if (ending() && pool_.empty() && zygote_->pid() == 0 && former_zygotes_.empty() &&
        (!next_zygote_ || next_zygote_->pid() == 0)) {
        finish(exit_status_);
    }
}

void Supervisor::finish(int exit_status) {
    if (loop_.stopped()) {
        return;
    }
    exit_status_ = exit_status;
    reap_stragglers();
    for (Listener& listener : listeners_) {
        listener.remove_socket_file();
        listener.restore_flags();
    }
    output_.flush(Clock::now());
    settle_log();
    log(LogLevel::notice, "stopped");
    end_control();
    settle_log();
    loop_.stop();
}

}  // namespace cede::pm
