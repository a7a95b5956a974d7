// SPDX-License-Identifier: Apache-2.0
#include "pm/zygote_host.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "children/fd_passing.h"
#include "pm/child_exec.h"
#include "pm/log.h"
#include "pm/surroundings.h"

namespace cede::pm {

using children::ZygoteReport;
using children::ZygoteSays;
using protocol::Protocol;

namespace {

// The agent speaks from its constructor, before PHP does anything: a few milliseconds after the start.
constexpr auto longest_silence = std::chrono::seconds{10};

std::string describe_status(int status) {
    if (WIFSIGNALED(status)) {
        return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

// It forks for those who wait, and must not itself wait for the children that it has just forked
// (docs/design/0011-the-zygote-goes-first.md). Without the right to do so everything works as well.
void prefer(pid_t zygote) {
    constexpr int advantage = 10;
    errno = 0;
    const int before = getpriority(PRIO_PROCESS, static_cast<id_t>(zygote));
    if (errno == 0) {
        setpriority(PRIO_PROCESS, static_cast<id_t>(zygote), before - advantage);
    }
    // sched(7), "The autogroup feature": where sessions are what is weighed.
    std::ofstream{fmt::format("/proc/{}/autogroup", zygote)} << before - advantage;
}

std::string sapi_name(const ZygoteReport& report) {
    return {report.sapi, strnlen(report.sapi, sizeof report.sapi)};
}

std::string not_for_web_servers(const std::string& program, const std::string& sapi) {
    return fmt::format(
        "{} is PHP's '{}' program, which speaks neither FastCGI nor LSAPI; give php-cgi or lsphp, for "
        "example /usr/bin/php-cgi8.2",
        program, sapi);
}

}  // namespace

ZygoteHost::ZygoteHost(Poller& poller, std::uint32_t id, Start start, Listener listener)
    : poller_{poller},
      id_{id},
      agent_{std::move(start.agent)},
      request_{std::move(start.request)},
      each_by_itself_{start.each_by_itself},
      listener_{std::move(listener)} {
    request_.inherited_fds.insert(request_.inherited_fds.begin(), -1);
}

ZygoteHost::~ZygoteHost() {
    dismiss();
}

bool ZygoteHost::start(std::uint32_t generation, Clock::time_point now, int output,
                       std::string& explanation) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        explanation = fmt::format("can't make a channel for it: {}", std::strerror(errno));
        return false;
    }
    children::UniqueFd theirs{ends[1]};
    channel_.reset(ends[0]);
    request_.inherited_fds.front() = theirs.get();
    request_.output_fd = output >= 0 ? output : STDERR_FILENO;
    const auto pid = children::spawn(request_);
    if (!pid) {
        channel_.reset();
        explanation = explain(pid.error());
        return false;
    }
    if (!poller_.add(channel_.get(), EPOLLIN, {Poller::Kind::zygote, id_, 0})) {
        explanation = fmt::format("can't watch it: {}", std::strerror(errno));
        ::kill(*pid, SIGKILL);
    }
    pid_ = *pid;
    generation_ = generation;
    started_at_ = now;
    phase_ = Phase::started;
    sapi_.clear();
    refusal_.clear();
    return true;
}

bool ZygoteHost::adopt(const Handover::Zygote& running) noexcept {
    channel_.reset(running.channel);
    pid_ = running.pid;
    generation_ = running.generation;
    started_at_ = Clock::time_point{std::chrono::nanoseconds{running.started_at}};
    protocol_ = static_cast<Protocol>(running.protocol);
    const bool scouted = each_by_itself_ && protocol_ != Protocol::unknown;
    phase_ = pid_ > 0 || scouted ? Phase::ready : Phase::down;
    return !channel_ || poller_.add(channel_.get(), EPOLLIN, {Poller::Kind::zygote, id_, 0});
}

Handover::Zygote ZygoteHost::describe() const noexcept {
    return {pid_, channel_.get(), generation_, static_cast<std::uint32_t>(protocol_),
            std::chrono::nanoseconds{started_at_.time_since_epoch()}.count()};
}

bool ZygoteHost::order(std::uint32_t slot, int child_channel, int child_output, children::FileId replaced) {
    executed_ = 0;
    if (each_by_itself_) {
        const auto pid = execute_child(request_, slot, child_channel, child_output);
        if (!pid) {
            log(LogLevel::error, "can't start child={}: {}", slot, explain(pid.error()));
            return false;
        }
        executed_ = *pid;
        return true;
    }
    children::ForkOrder order;
    order.slot = slot;
    order.generation = generation_;
    order.replaced = replaced;
    return children::send_message(channel_.get(), &order, sizeof order, child_channel, child_output);
}

void ZygoteHost::on_readable() {
    while (channel_) {
        ZygoteReport report;
        const auto received = children::receive_message(channel_.get(), &report, sizeof report, false);
        const children::UniqueFd unwanted{received.fd};
        if (received.kind == children::Received::Kind::nothing) {
            return;
        }
        if (received.kind != children::Received::Kind::message) {
            poller_.remove(channel_.get());
            channel_.reset();
            return;
        }
        if (received.size == sizeof report && report.version == children::protocol_version) {
            hear(report);
        } else {
            log(LogLevel::error,
                "zygote gen={} pid={} speaks another version of cede's protocol; cede and "
                "libcede-agent.so must be of the same build (see --agent)",
                generation_, pid_);
            kill();
        }
    }
}

// Why children of this program could not serve.
std::string ZygoteHost::objection(const ZygoteReport& report) const {
    const std::string& program = request_.command.front();
    const bool lsphp = sapi_ == "litespeed";
    if (!sapi_.empty() && !lsphp && sapi_ != "cgi-fcgi") {
        return not_for_web_servers(program, sapi_);
    }
    const Protocol own = lsphp ? Protocol::lsapi : Protocol::fastcgi;
    if (!sapi_.empty() && report.protocol != own) {
        return fmt::format("{} speaks {}, but --protocol is {}; leave that option out", program,
                           protocol::name_of(own), protocol::name_of(report.protocol));
    }
    // Signals, limits and the slot would be those of a process that only waits for PHP.
    if (each_by_itself_ && report.pid != pid_) {
        return fmt::format(
            "{} starts PHP as a process of its own, which --spawn exec can't supervise; put exec in front of "
            "PHP's path in that script",
            program);
    }
    if (lsphp && (request_.change_identity ? request_.uid : geteuid()) == 0) {
        return fmt::format(
            "{} ends after its first connection when it runs as root; give another user with --user",
            program);
    }
    return {};
}

void ZygoteHost::hear(const ZygoteReport& report) {
    switch (report.says) {
        case ZygoteSays::hello:
            if (phase_ == Phase::started) {
                phase_ = Phase::loaded;
            }
            break;
        case ZygoteSays::ended:
            sapi_ = sapi_name(report);
            break;
        case ZygoteSays::ready:
            sapi_ = sapi_name(report);
            refusal_ = objection(report);
            if (!refusal_.empty()) {
                kill();
                dismiss();  // and whoever else it has started
                break;
            }
            phase_ = Phase::ready;
            prefer(pid_);
            protocol_ = report.protocol == Protocol::lsapi ? Protocol::lsapi : Protocol::fastcgi;
            if (each_by_itself_) {
                kill();  // its work is done
            } else if (report.number > 1) {
                log(LogLevel::warning,
                    "zygote gen={} pid={} runs {} threads: an extension started them before the first "
                    "request, and forked children lack them; if requests hang, use --spawn exec, or disable "
                    "that extension",
                    generation_, pid_, report.number);
            }
            listener_.ready();
            break;
        case ZygoteSays::forked:
        case ZygoteSays::not_forked:
            if (report.generation == generation_) {
                listener_.forked(report);
            }
            break;
    }
}

std::string ZygoteHost::on_exit(int status) {
    on_readable();  // its last words
    const Phase reached = std::exchange(phase_, Phase::down);
    if (channel_) {
        poller_.remove(channel_.get());
        channel_.reset();
    }
    pid_ = 0;
    if (each_by_itself_ && reached == Phase::ready) {
        phase_ = Phase::ready;
        return {};
    }
    const std::string& program = request_.command.front();
    const std::string how = describe_status(status);
    if (!refusal_.empty()) {
        return refusal_;
    }
    if (reached == Phase::loaded && sapi_ == "cli") {
        return not_for_web_servers(program, sapi_);
    }
    switch (reached) {
        case Phase::started:
            return fmt::format(
                "{} {} before the agent was loaded into it; the preloaded library must be readable "
                "for its user and of its machine type (see --agent)",
                program, how);
        case Phase::loaded:
            return fmt::format(
                "{} {} before it asked for a connection; is it php-cgi or lsphp? Run it by hand to see what "
                "it says: {} -v",
                program, how, program);
        default:
            return fmt::format("{} {}", program, how);
    }
}

void ZygoteHost::dismiss() noexcept {
    dismissed_at_ = Clock::now();
    if (channel_) {
        poller_.remove(channel_.get());
        channel_.reset();
    }
}

void ZygoteHost::kill() noexcept {
    // Without CAP_KILL another user's process ends by what it hears only.
    if (pid_ > 0 && ::kill(pid_, SIGKILL) != 0 && errno == EPERM) {
        dismiss();
    }
}

std::string ZygoteHost::overdue(Clock::time_point now, Clock::duration start_timeout) const {
    const std::string& program = request_.command.front();
    if (phase_ == Phase::started &&
        now - started_at_ > std::min<Clock::duration>(longest_silence, start_timeout)) {
        return fmt::format(
            "the agent was not loaded into {}; the preloaded library must be readable for its user "
            "and of its machine type, and the program dynamically linked (see --agent)",
            program);
    }
    if (phase_ == Phase::loaded && now - started_at_ > start_timeout) {
        return fmt::format(
            "{} has not asked for a connection within the start timeout; is it php-cgi or lsphp? If it "
            "only needs longer, raise --start-timeout",
            program);
    }
    return {};
}

}  // namespace cede::pm
