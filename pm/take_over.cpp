// SPDX-License-Identifier: Apache-2.0
// How a supervisor goes on for another one in the same process (docs/design/0009-upgrade.md).
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <signal.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "children/scoreboard_map.h"
#include "children/spawn.h"
#include "pm/config_value.h"
#include "pm/listener.h"
#include "pm/log.h"
#include "pm/run.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

using children::UniqueFd;

UniqueFd copy_of(int fd) {
    return UniqueFd{fcntl(fd, F_DUPFD_CLOEXEC, 3)};
}

Listener listener_of(const Handover::Socket& socket) {
    Listener listener;
    listener.fd = copy_of(socket.fd);
    listener.kind = static_cast<Listener::Kind>(socket.kind);
    listener.name = socket.name;
    listener.created = socket.created;
    listener.access = socket.access;
    listener.path = socket.path;
    listener.device = socket.device;
    listener.inode = socket.inode;
    listener.backlog_asked = socket.backlog_asked;
    listener.backlog_granted = socket.backlog_granted;
    listener.nonblocking_before = socket.nonblocking_before;
    return listener;
}

// The configuration that the children run with, whatever the file says by now.
Config running_config(const Handover& left) {
    std::vector<std::pair<std::string, std::string>> settings;
    for (const Handover::Setting& setting : left.settings) {
        settings.emplace_back(setting.name, setting.value);
    }
    std::vector<std::string> dropped;
    Config config = config_of(settings, left.command, environment_of(own_environment()), dropped);
    if (!dropped.empty()) {
        log(LogLevel::warning, "this version has no such setting: {}", fmt::join(dropped, ", "));
    }
    config.ready_fd.reset();  // was told, and closed: the number may be anybody's by now
    return config;
}

// Without what further starts need the children that there are go on.
Start start_or_nothing(const Config& config, std::size_t listeners, std::uint32_t slots,
                       const rlimit& open_files) {
    auto start = prepare_start(config, listeners, slots, open_files);
    if (!start) {
        log(LogLevel::error, "{}; reload when it is mended", start.error().message);
        Start nothing;
        nothing.request.command = config.command;
        return nothing;
    }
    return std::move(*start);
}

// What has to work before anything is taken from the one before. Everything in it is a copy.
struct Taken {
    Handover handover;
    Invoked invoked;
    Config config;
    std::vector<Listener> listeners;
    std::unique_ptr<Supervisor> supervisor;
};

std::expected<std::unique_ptr<Taken>, Error> prepare_takeover(const Invoked& invoked,
                                                              const Predecessor& predecessor) {
    auto handover = read_handover(predecessor.file.get(), Reading::take_over);
    if (!handover) {
        return std::unexpected{Error{handover.error()}};
    }
    auto taken = std::make_unique<Taken>();
    taken->handover = std::move(*handover);
    taken->invoked = invoked;
    const Handover& left = taken->handover;
    taken->config = running_config(left);
    taken->invoked.self.open_files = {left.files_soft, left.files_hard};
    set_log_level(taken->config.log_level);
    if (auto opened = open_log(taken->config); !opened) {
        log(LogLevel::error, "{}; the log goes to stderr", opened.error().message);
    }
    raise_open_files(taken->config);
    for (const Handover::Socket& socket : left.listeners) {
        taken->listeners.push_back(listener_of(socket));
        if (!taken->listeners.back().fd) {
            return std::unexpected{Error{fmt::format("can't copy a descriptor: {}", std::strerror(errno))}};
        }
    }
    auto scoreboard = children::ScoreboardMap::adopt(copy_of(left.scoreboard));
    if (!scoreboard) {
        return std::unexpected{
            Error{fmt::format("can't map the scoreboard: {}", std::strerror(scoreboard.error()))}};
    }
    const std::uint32_t slots = scoreboard->slots();
    const std::size_t listeners = taken->listeners.size();
    const rlimit& open_files = taken->invoked.self.open_files;
    taken->supervisor =
        std::make_unique<Supervisor>(taken->config, taken->listeners, std::move(*scoreboard),
                                     start_or_nothing(taken->config, listeners, slots, open_files),
                                     refresh_of(taken->invoked, listeners, slots), taken->invoked.self,
                                     Handoff::Ends{copy_of(left.handoff_ours), copy_of(left.handoff_theirs)});
    return taken;
}

}  // namespace

std::optional<Predecessor> find_predecessor() {
    Predecessor found;
    for (const char* const variable : {handover_variable, handover_check_variable}) {
        const char* const text = std::getenv(variable);
        if (text == nullptr) {
            continue;
        }
        if (const auto fd = parse_number(text, 3, 0x7fffffff)) {
            found.file.reset(static_cast<int>(*fd));
            found.only_asked = variable == handover_check_variable;
            fcntl(found.file.get(), F_SETFD, FD_CLOEXEC);
        }
        unsetenv(variable);
    }
    if (const char* const failure = std::getenv(handover_failed_variable)) {
        found.failure = failure;
        unsetenv(handover_failed_variable);
    }
    return found.file ? std::optional{std::move(found)} : std::nullopt;
}

int take_over(const Invoked& invoked, const Predecessor& predecessor) {
    std::expected<std::unique_ptr<Taken>, Error> taken = std::unexpected{Error{"out of memory"}};
    try {
        taken = prepare_takeover(invoked, predecessor);
    } catch (const std::exception& error) {
        taken = std::unexpected{Error{error.what()}};
    }
    if (!taken) {
        return fall_back(predecessor, taken.error());
    }
    const Handover& left = (*taken)->handover;
    signal(SIGPIPE, SIG_IGN);
    for (const int fd : descriptors_of(left)) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    (*taken)->supervisor->resume(left, predecessor.failure);
    // Of these there are copies.
    for (const Handover::Socket& socket : left.listeners) {
        close(socket.fd);
    }
    for (const int fd : {left.scoreboard, left.handoff_ours, left.handoff_theirs, left.executable}) {
        close(fd);
    }
    return serve_until_stopped(*(*taken)->supervisor, (*taken)->config);
}

int check_takeover(const Config& config, const Predecessor& predecessor) {
    const auto handover = read_handover(predecessor.file.get(), Reading::look);
    if (!handover) {
        return complain({handover.error()});
    }
    Config fresh = config;
    (void)keep_what_needs_restart(fresh, running_config(*handover));
    if (auto checked = check_settings(fresh, handover->slots); !checked) {
        return complain(checked.error());
    }
    const auto agent = find_agent(fresh);
    return agent ? 0 : complain(agent.error());
}

int fall_back(const Predecessor& predecessor, const Error& error) {
    const auto handover = read_handover(predecessor.file.get(), Reading::take_over);
    if (!handover || !predecessor.failure.empty()) {
        return complain(error);
    }
    const std::vector<std::string> environment =
        environment_with({fmt::format("{}={}", handover_variable, predecessor.file.get()),
                          fmt::format("{}={}", handover_failed_variable, error.message)});
    std::vector<std::string> arguments = handover->arguments;
    fcntl(predecessor.file.get(), F_SETFD, 0);
    fexecve(handover->executable, children::pointers(arguments).data(),
            children::pointers(environment).data());
    return complain({fmt::format("{}; and the program of before can't be executed any more: {}",
                                 error.message, std::strerror(errno))});
}

}  // namespace cede::pm
