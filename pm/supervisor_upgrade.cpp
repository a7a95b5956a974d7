// SPDX-License-Identifier: Apache-2.0
// Another program goes on in this process, with all that is open (docs/design/0009-upgrade.md).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "children/scoreboard.h"
#include "children/zygote_protocol.h"
#include "pm/log.h"
#include "pm/supervisor.h"

#ifndef CEDE_VERSION
#error "CEDE_VERSION must be defined as a string; the build files do so"
#endif

namespace cede::pm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto longest_check = std::chrono::seconds{10};
constexpr std::size_t longest_complaint = 4096;

std::int64_t nanoseconds(Clock::time_point at) {
    return std::chrono::nanoseconds{at.time_since_epoch()}.count();
}

Clock::time_point time_of(std::int64_t nanoseconds) {
    return Clock::time_point{std::chrono::nanoseconds{nanoseconds}};
}

std::string text_in(int fd) {
    std::string text(longest_complaint, '\0');
    const ssize_t got = pread(fd, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    while (text.ends_with('\n')) {
        text.pop_back();
    }
    return text;
}

void keep_open_across_exec(const std::vector<int>& descriptors, bool keep) noexcept {
    for (const int fd : descriptors) {
        fcntl(fd, F_SETFD, keep ? 0 : FD_CLOEXEC);
    }
}

}  // namespace

void Supervisor::hold_all_signals(bool hold) noexcept {
    sigset_t signals;
    hold ? sigfillset(&signals) : sigemptyset(&signals);
    sigprocmask(SIG_SETMASK, &signals, nullptr);
}

void Supervisor::upgrade(children::UniqueFd client) {
    if (upgrade_.stage != Upgrade::Stage::none || (course_ != Course::serving)) {
        answer_raw(client.release(),
                   {false, upgrade_.stage != Upgrade::Stage::none ? "an upgrade is under way already"
                                                                  : "cede is starting or stopping"});
        return;
    }
    log(LogLevel::notice, "upgrading: {} is asked whether it can take over", self_.executed);
    upgrade_.stage = Upgrade::Stage::checking;
    upgrade_.client = std::move(client);
    upgrade_.deadline = Clock::now() + longest_check;
    upgrade_.said.reset(memfd_create("cede-upgrade-check", MFD_CLOEXEC));
    const children::UniqueFd null{open("/dev/null", O_RDONLY | O_CLOEXEC)};
    const auto handover = write_handover(describe_all());
    if (!upgrade_.said || !null || !handover) {
        fail_upgrade(fmt::format("no file could be made in memory: {}", std::strerror(errno)));
        return;
    }
    children::SpawnRequest request;
    request.command = self_.arguments;
    request.command.front() = self_.executed;
    request.environment =
        environment_with({fmt::format("{}={}", handover_check_variable, children::inherited_base)});
    request.stdin_fd = null.get();
    request.output_fd = upgrade_.said.get();
    request.inherited_fds = {handover->get()};
    const auto pid = children::spawn(request);
    if (!pid) {
        fail_upgrade(fmt::format("{}: can't {}: {}", self_.executed, children::describe(pid.error().step),
                                 std::strerror(pid.error().error)));
        return;
    }
    upgrade_.check = *pid;
    arm_timer();
}

void Supervisor::on_upgrade_checked(int status) {
    upgrade_.check = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        const std::string said = text_in(upgrade_.said.get());
        fail_upgrade(fmt::format("{} {}: {}", self_.executed,
                                 WIFSIGNALED(status)
                                     ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                     : "can't take over",
                                 said.empty() ? "it did not say why" : said));
        return;
    }
    upgrade_.stage = Upgrade::Stage::waiting;
    upgrade_.deadline = Clock::now() + config_.start_timeout;
    tend_upgrade(Clock::now());
}

void Supervisor::tend_upgrade(Clock::time_point now) {
    if (upgrade_.stage == Upgrade::Stage::checking && now > upgrade_.deadline) {
        kill(upgrade_.check, SIGKILL);  // what comes of that is said when it has ended
    } else if (upgrade_.stage == Upgrade::Stage::waiting && is_quiet()) {
        // What has been caught already is acted on before the next turn; what comes now waits for the next
        // program.
        hold_all_signals(true);
        upgrade_.stage = Upgrade::Stage::settling;
    } else if (upgrade_.stage == Upgrade::Stage::settling) {
        upgrade_.stage = Upgrade::Stage::waiting;
        if (is_quiet()) {
            execute_successor();
        }
        hold_all_signals(false);
    } else if (upgrade_.stage == Upgrade::Stage::waiting && now > upgrade_.deadline) {
        fail_upgrade("processes are being started or ended all the time; try again");
    }
}

// Nothing is on its way that could not be described.
bool Supervisor::is_quiet() const noexcept {
    return course_ == Course::serving && reload_.stage == Reload::Stage::none && former_zygotes_.empty() &&
           early_exits_.empty() && !children_wanted_ && pool_.count(Pool::Phase::ordered) == 0 &&
           (zygote_->phase() == ZygoteHost::Phase::ready || zygote_->phase() == ZygoteHost::Phase::down);
}

Handover Supervisor::describe_all() const {
    Handover handover;
    handover.scoreboard_version = children::scoreboard_version;
    handover.protocol_version = children::protocol_version;
    handover.born = nanoseconds(born_);
    handover.supervisor = getpid();
    handover.version = CEDE_VERSION;
    handover.executed = self_.executed;
    handover.arguments = self_.arguments;
    handover.files_soft = self_.open_files.rlim_cur;
    handover.files_hard = self_.open_files.rlim_max;
    for (const auto& [name, value] : config_.settings) {
        handover.settings.push_back({name, value});
    }
    handover.command = config_.command;
    handover.slots = scoreboard_.slots();
    for (const Listener& listener : listeners_) {
        handover.listeners.push_back({listener.fd.get(), static_cast<int>(listener.kind), listener.name,
                                      listener.created, listener.access, listener.path, listener.device,
                                      listener.inode, listener.backlog_asked, listener.backlog_granted,
                                      listener.nonblocking_before});
    }
    handover.scoreboard = scoreboard_.fd();
    handover.handoff_ours = dispatcher_.handoff_sender();
    handover.handoff_theirs = dispatcher_.handoff_receiver();
    handover.parent = parent_fd_;
    handover.client = upgrade_.client.get();
    if (control_) {
        handover.control = {control_->descriptor(), control_socket_.path, control_socket_.device,
                            control_socket_.inode};
    }
    handover.totals = totals_now().save();
    handover.generation = generation_;
    handover.zygote = zygote_->describe();
    for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
        const Pool::Child& child = pool_.at(slot);
        if (child.phase == Pool::Phase::alive) {
            handover.children.push_back({slot, child.pid, child.channel.get(), child.ready, child.leaving,
                                         child.outdated, child.generation, child.chance,
                                         nanoseconds(child.ordered_at), nanoseconds(child.ready_at),
                                         nanoseconds(child.leaving_since), child.reserved});
        }
    }
    for (const ChildOutput::Held& output : output_.held()) {
        handover.outputs.push_back(
            {static_cast<int>(output.owner.kind), output.owner.number, output.fd, output.author});
    }
    Dispatcher::Holdings holdings = dispatcher_.holdings();
    handover.parked = std::move(holdings.parked);
    handover.fresh = std::move(holdings.fresh);
    handover.partial = std::move(holdings.partial);
    handover.leaving = std::move(holdings.leaving);
    handover.lingering = std::move(holdings.lingering);
    handover.queued = std::move(holdings.queued);
    return handover;
}

void Supervisor::execute_successor() {
    output_.flush(Clock::now());  // before it is described: a pipe that has ended is closed by this
    Handover handover = describe_all();
    children::UniqueFd executable{open("/proc/self/exe", O_PATH | O_CLOEXEC)};
    handover.executable = executable.get();
    auto file = write_handover(handover);
    if (!file) {
        fail_upgrade(fmt::format("no file could be made in memory: {}", std::strerror(file.error())));
        return;
    }
    log(LogLevel::notice, "upgrading: {} takes over from version " CEDE_VERSION, self_.executed);
    settle_log();
    std::vector<int> descriptors = descriptors_of(handover);
    descriptors.push_back(file->get());
    std::vector<std::string> arguments = self_.arguments;
    const std::vector<std::string> environment =
        environment_with({fmt::format("{}={}", handover_variable, file->get())});
    const std::vector<char*> argv = children::pointers(arguments);
    const std::vector<char*> envp = children::pointers(environment);
    keep_open_across_exec(descriptors, true);
    execve(self_.executed.c_str(), argv.data(), envp.data());
    const int error = errno;
    keep_open_across_exec(descriptors, false);
    fail_upgrade(fmt::format("{} can't be executed: {}", self_.executed, std::strerror(error)));
}

void Supervisor::fail_upgrade(const std::string& why) {
    upgrade_.stage = Upgrade::Stage::none;
    upgrade_.said.reset();
    const std::string text = fmt::format("the upgrade failed, version " CEDE_VERSION " goes on: {}", why);
    log(LogLevel::error, "{}", text);
    if (upgrade_.client) {
        answer_raw(upgrade_.client.release(), {false, text});
    }
}

// In a stop.
void Supervisor::abandon_upgrade() {
    if (upgrade_.stage != Upgrade::Stage::none) {
        hold_all_signals(false);
        fail_upgrade("cede is stopping");
    }
}

void Supervisor::resume(const Handover& handover, const std::string& failure) {
    resumed_ = true;
    course_ = Course::serving;
    born_ = time_of(handover.born);
    generation_ = handover.generation;
    if (!zygote_->adopt(handover.zygote)) {
        log(LogLevel::error, "zygote gen={} pid={} can't be watched: {}", zygote_->generation(),
            zygote_->pid(), std::strerror(errno));
        zygote_->kill();
    }
    dispatcher_.speak(zygote_->protocol());
    for (const Handover::Child& running : handover.children) {
        children::UniqueFd channel{running.channel};
        if (running.slot >= scoreboard_.slots()) {
            continue;
        }
        pool_.resize(std::max(pool_.size(), running.slot + 1));
        const Poller::Tag tag{Poller::Kind::child, running.slot, pool_.at(running.slot).age};
        if (channel && !poller_.add(channel.get(), EPOLLIN, tag)) {
            log(LogLevel::error, "child={} pid={} can't be watched: {}", running.slot, running.pid,
                std::strerror(errno));
        }
        pool_.order(running.slot, running.generation, std::move(channel), time_of(running.ordered_at));
        Pool::Child& child = pool_.at(running.slot);
        child.phase = Pool::Phase::alive;
        child.pid = running.pid;
        child.ready = running.ready;
        child.leaving = running.leaving;
        child.outdated = running.outdated;
        child.chance = running.chance;
        child.reserved = running.reserved;
        child.ready_at = time_of(running.ready_at);
        child.leaving_since = time_of(running.leaving_since);
        reload_.outdated_left = reload_.outdated_left || child.superseded();
    }
    for (const Handover::Output& output : handover.outputs) {
        output_.adopt({static_cast<ChildOutput::Owner::Kind>(output.kind), output.number}, config_,
                      children::UniqueFd{output.fd}, output.author);
    }
    scoreboard_.control().slots_used = pool_.size();
    dispatcher_.adopt({handover.parked, handover.fresh, handover.partial, handover.leaving,
                       handover.lingering, handover.queued});
    dispatcher_.child_is_watching();
    sizing_.resume();
    if (handover.parent >= 0) {
        follow(children::UniqueFd{handover.parent});
    }
    if (handover.control.fd >= 0) {
        control_by({children::UniqueFd{handover.control.fd}, handover.control.path,
                    static_cast<dev_t>(handover.control.device), handover.control.inode});
    }
    if (!totals_.load(handover.totals)) {
        log(LogLevel::warning, "what was counted before the upgrade can't be read; counting begins anew");
    }
    upgrade_.client.reset(handover.client);
    if (!failure.empty()) {
        fail_upgrade(failure);
        return;
    }
    log(LogLevel::notice, "version " CEDE_VERSION " has taken over from version {}: {} children, {} parked",
        handover.version, handover.children.size(), dispatcher_.parked());
    ++totals_.events.upgrades;
    reload("upgrade", [client = std::make_shared<children::UniqueFd>(std::move(upgrade_.client)),
                       from = handover.version](const Outcome& outcome) {
        if (*client) {
            answer_raw(client->release(),
                       {outcome.good,
                        fmt::format("upgraded from version {} to " CEDE_VERSION "; {}", from, outcome.text)});
        }
    });
}

}  // namespace cede::pm
