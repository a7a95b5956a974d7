// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <expected>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "children/scoreboard_map.h"
#include "children/spawn.h"
#include "children/unique_fd.h"
#include "pm/child_environment.h"
#include "pm/config.h"
#include "pm/identity.h"
#include "pm/listener.h"
#include "pm/log.h"
#include "pm/preflight.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

// For the loop itself, the log, the netlink sockets and what a child's start needs for a moment.
constexpr rlim_t descriptors_for_ourselves = 64;

int complain(const Error& error) {
    fmt::print(stderr, "cede: error: {}\n", error.message);
    return error.exit_status;
}

// The path that a children's user could not open, because of a folder on the way, is none for the loader: it
// is given the open file instead.
std::string preload_path(std::size_t listeners) {
    constexpr std::size_t before_listeners = 3;  // channel, scoreboard, handoff queue
    return fmt::format("/proc/self/fd/{}", children::inherited_base + before_listeners + listeners);
}

std::expected<std::string, Error> find_agent(const Config& config) {
    if (!config.agent.empty()) {
        if (access(config.agent.c_str(), R_OK) == 0) {
            return config.agent;
        }
        return std::unexpected{
            Error{fmt::format("{}: can't read the agent {}: {}; give the path of libcede-agent.so",
                              where(config, "agent"), config.agent, std::strerror(errno))}};
    }
    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    for (const std::filesystem::path& folder : {self.parent_path(), std::filesystem::path{CEDE_AGENT_DIR}}) {
        const std::string candidate = folder / "libcede-agent.so";
        if (access(candidate.c_str(), R_OK) == 0) {
            return candidate;
        }
    }
    return std::unexpected{
        Error{fmt::format("can't find libcede-agent.so beside {} or in {}; give its path with --agent",
                          self.string(), CEDE_AGENT_DIR)}};
}

rlim_t descriptors_beside(const Config& config) {
    return 2 * rlim_t{config.children} + descriptors_for_ourselves;
}

// Parked connections are descriptors of ours, and those that have become readable and wait for a child are as
// many again. Returns what the children are to get back.
rlimit raise_open_files(const Config& config) {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit wanted = before;
    const rlim_t needed = 2 * rlim_t{config.max_parked} + descriptors_beside(config);
    wanted.rlim_cur = std::max(before.rlim_cur, needed);
    wanted.rlim_max = std::max(before.rlim_max, needed);
    if (setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
        // Only root may raise the hard limit.
        wanted = {std::max(before.rlim_cur, std::min(needed, before.rlim_max)), before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &wanted);
    }
    return before;
}

Dispatcher::Room room_within_limit(const Config& config) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t others = descriptors_beside(config);
    const rlim_t held =
        std::min(limit.rlim_cur > others ? limit.rlim_cur - others : 1, 2 * rlim_t{config.max_parked});
    const rlim_t parked = std::min<rlim_t>(held - held / 8, config.max_parked);
    if (parked < config.max_parked) {
        log(config.origins.contains("max-parked") ? LogLevel::warning : LogLevel::info,
            "room for {} parked connections only, not {}: the limit of open files is {}; raise it "
            "(LimitNOFILE=, "
            "ulimit -Hn) or lower --max-parked",
            parked, config.max_parked, limit.rlim_cur);
    }
    return {parked, held};
}

struct Start {
    children::UniqueFd agent;
    children::SpawnRequest request;
};

std::expected<Start, Error> prepare_start(const Config& config, std::size_t listeners) {
    const auto identity = resolve_identity(config, geteuid());
    if (!identity) {
        return std::unexpected{identity.error()};
    }
    const auto path = find_agent(config);
    if (!path) {
        return std::unexpected{path.error()};
    }
    children::UniqueFd agent{open(path->c_str(), O_RDONLY | O_CLOEXEC)};
    if (!agent) {
        return std::unexpected{
            Error{fmt::format("can't open the agent {}: {}", *path, std::strerror(errno))}};
    }
    std::vector<const char*> own;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        own.push_back(*entry);
    }
    children::SpawnRequest request;
    request.command = config.command;
    request.environment = child_environment(own, preload_path(listeners), listeners, config.children);
    request.inherited_fds = {agent.get()};
    request.change_identity = identity->change;
    request.uid = identity->uid;
    request.gid = identity->gid;
    request.supplementary = identity->supplementary;
    return Start{std::move(agent), std::move(request)};
}

int serve(const Config& config) {
    if (const auto objections = check_all(config, geteuid()); !objections.empty()) {
        for (const Error& error : objections) {
            complain(error);
        }
        return objections.front().exit_status;
    }
    auto opened = open_listeners(config, getpid(), std::getenv("LISTEN_PID"), std::getenv("LISTEN_FDS"));
    if (!opened) {
        return complain(opened.error());
    }
    auto start = prepare_start(config, opened->listeners.size());
    if (!start) {
        for (Listener& listener : opened->listeners) {
            listener.remove_socket_file();
            listener.restore_flags();
        }
        return complain(start.error());
    }
    for (const std::string& warning : opened->warnings) {
        log(LogLevel::warning, "{}", warning);
    }
    start->request.open_files = raise_open_files(config);
    // Children of the zygote become ours when the process between ends (prctl(2)).
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    auto scoreboard = children::ScoreboardMap::create(config.children);
    if (!scoreboard) {
        return complain({fmt::format("can't make the scoreboard: {}", std::strerror(scoreboard.error()))});
    }
    for (const Listener& listener : opened->listeners) {
        log(LogLevel::notice, "listening on {} (backlog {}){}", listener.name, listener.backlog_granted,
            listener.created ? "" : ", inherited");
    }
    Supervisor supervisor{config, opened->listeners, std::move(*scoreboard), std::move(start->request),
                          room_within_limit(config)};
    return supervisor.run();
}

int check(const Config& config) {
    const auto objections = check_all(config, geteuid());
    for (const Error& error : objections) {
        complain(error);
    }
    if (!objections.empty()) {
        return objections.front().exit_status;
    }
    if (const auto agent = find_agent(config); !agent) {
        return complain(agent.error());
    }
    fmt::print("the configuration is valid\n");
    return 0;
}

int dispatch(std::span<const char* const> arguments) {
    const auto invocation = parse_invocation(arguments, Environment::current());
    if (!invocation) {
        return complain(invocation.error());
    }
    set_log_level(invocation->config.log_level);
    switch (invocation->mode) {
        case Mode::help:
        case Mode::version:
            fmt::print("{}", invocation->text);
            return 0;
        case Mode::check:
            return check(invocation->config);
        case Mode::run:
            return serve(invocation->config);
    }
    return Error::failure;
}

}  // namespace
}  // namespace cede::pm

int main(int argc, char** argv) {
    try {
        return cede::pm::dispatch({argv, static_cast<std::size_t>(argc)});
    } catch (const std::exception& error) {
        fmt::print(stderr, "cede: error: {}\n", error.what());
        return cede::pm::Error::failure;
    }
}
