// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <expected>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <signal.h>
#include <span>
#include <string>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "children/scoreboard_map.h"
#include "children/spawn.h"
#include "children/unique_fd.h"
#include "pm/child_environment.h"
#include "pm/command.h"
#include "pm/command_run.h"
#include "pm/config.h"
#include "pm/control_socket.h"
#include "pm/environment_defaults.h"
#include "pm/identity.h"
#include "pm/inherited.h"
#include "pm/listener.h"
#include "pm/log.h"
#include "pm/lone_connection.h"
#include "pm/lsapi_environment.h"
#include "pm/lsphp_name.h"
#include "pm/option_table.h"
#include "pm/parent_process.h"
#include "pm/preflight.h"
#include "pm/process_title.h"
#include "pm/supervisor.h"
#include "pm/surroundings.h"

namespace cede::pm {
namespace {

// For the loop itself, the log, the netlink sockets and what a child's start needs for a moment.
constexpr rlim_t descriptors_for_ourselves = 64;

std::vector<const char*> own_environment() {
    std::vector<const char*> own;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        own.push_back(*entry);
    }
    return own;
}

int complain(const Error& error) {
    log_last_words(error.message);
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

bool is_socket(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

// A web server that executes us (OpenLiteSpeed) has a socket as descriptor 1 that nobody reads.
void keep_off_a_socket_on_stdout() {
    if (is_socket(STDOUT_FILENO)) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
    }
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
    const auto chosen = chosen_environment(own_environment(), config.environment);
    std::vector<const char*> entries;
    std::ranges::transform(chosen, std::back_inserter(entries), &std::string::c_str);
    children::SpawnRequest request;
    request.command = config.command;
    request.environment = child_environment(entries, preload_path(listeners), listeners, config.children);
    request.inherited_fds = {agent.get()};
    request.surroundings = surroundings_of(config);
    take_identity(request, *identity);
    return Start{std::move(agent), std::move(request)};
}

// Where stock lsphp ends with its parent, so do we; only a web server that gave us its own listener is one.
void follow_parent(Supervisor& supervisor, std::span<const Listener> listeners, bool from_systemd,
                   const Environment& environment) {
    if (listeners.front().created || from_systemd || !ends_with_parent(environment)) {
        return;
    }
    if (children::UniqueFd parent = parent_handle(getppid())) {
        supervisor.follow(std::move(parent));
    }
}

void announce(const Config& config, std::span<const Listener> listeners) {
    if (const std::string warning = check_signalling(config, geteuid()); !warning.empty()) {
        log(LogLevel::warning, "{}", warning);
    }
    for (const Listener& listener : listeners) {
        log(LogLevel::notice, "listening on {} (backlog {}){}", listener.name, listener.backlog_granted,
            listener.created ? "" : ", inherited");
    }
    if (const auto names = set_in_vain(own_environment()); !names.empty()) {
        log(LogLevel::notice, "without effect here: {} (docs/moving-from-lsphp.md says why)",
            fmt::join(names, " "));
    }
}

void give_back(std::span<Listener> listeners) {
    for (Listener& listener : listeners) {
        listener.remove_socket_file();
        listener.restore_flags();
    }
}

// Without a control socket a pool serves as well: only who asked for a certain one must have it.
std::expected<ControlSocket, Error> open_control(const Config& config, std::string_view address,
                                                 const Environment& environment) {
    auto control = open_control_socket(config, address, environment);
    if (!control && config.control.empty()) {
        log(LogLevel::warning, "{}", control.error().message);
        return ControlSocket{};
    }
    if (control && control->fd) {
        log(LogLevel::notice, "control socket {} (cede status --control {})", control->path, control->path);
    }
    return control;
}

int serve(const Config& config, const Environment& environment) {
    keep_off_a_socket_on_stdout();
    const char* const listen_pid = std::getenv("LISTEN_PID");
    const char* const listen_fds = std::getenv("LISTEN_FDS");
    const bool from_systemd = handed_over_by_systemd(getpid(), listen_pid, listen_fds);
    if (config.listen.empty() && !from_systemd && connection_on_descriptor_0() &&
        is_for_lsphp(config, environment)) {
        return complain(become_lone_lsphp(config, geteuid()));
    }
    // A reader of the log that has gone, or a rotation of logs at this very moment, ends nothing.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    if (const auto objections = check_all(config, geteuid()); !objections.empty()) {
        for (const Error& error : objections) {
            complain(error);
        }
        return objections.front().exit_status;
    }
    auto opened = open_listeners(config, getpid(), listen_pid, listen_fds);
    if (!opened) {
        return complain(opened.error());
    }
    auto start = prepare_start(config, opened->listeners.size());
    if (!start) {
        give_back(opened->listeners);
        return complain(start.error());
    }
    for (const std::string& warning : opened->warnings) {
        log(LogLevel::warning, "{}", warning);
    }
    const rlimit before = raise_open_files(config);
    if (!config.rlimit_nofile) {
        start->request.surroundings.open_files = before;
    }
    // Children of the zygote become ours when the process between ends (prctl(2)).
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    auto scoreboard = children::ScoreboardMap::create(config.children);
    if (!scoreboard) {
        return complain({fmt::format("can't make the scoreboard: {}", std::strerror(scoreboard.error()))});
    }
    auto control = open_control(config, opened->listeners.front().name, environment);
    if (!control) {
        give_back(opened->listeners);
        return complain(control.error());
    }
    announce(config, opened->listeners);
    Supervisor supervisor{config, opened->listeners, std::move(*scoreboard), std::move(start->request),
                          room_within_limit(config)};
    follow_parent(supervisor, opened->listeners, from_systemd, environment);
    if (control->fd) {
        supervisor.control_by(std::move(*control));
    }
    show_title("supervisor", config.title);
    const int status = supervisor.run();
    if (status != 0 && config.log != "stderr") {
        fmt::print(stderr, "cede: error: it could not start; see the log ({}), which says why\n", config.log);
    }
    return status;
}

int check(const Config& config) {
    auto objections = check_all(config, geteuid());
    if (auto log = check_log(config); !log) {
        objections.push_back(std::move(log.error()));
    }
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

int dispatch(std::span<const char* const> arguments, const StartedAs& started_as) {
    const Environment environment = environment_of(own_environment());
    const auto invocation = parse_invocation(arguments, environment, started_as);
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
            if (auto opened = open_log(invocation->config); !opened) {
                return complain(opened.error());
            }
            return serve(invocation->config, environment);
    }
    return Error::failure;
}

// lsphp's name for itself (PHP_BINARY) is its argv[0], with links resolved: that must not lead to us.
int become_real_lsphp(const std::string& place, std::string real, std::span<char* const> arguments) {
    if (real.empty()) {
        return complain(
            {place + ": there is no lsphp.real beside it; put the real lsphp there under that name"});
    }
    std::vector<char*> argv{arguments.begin(), arguments.end()};
    argv.resize(std::max<std::size_t>(argv.size(), 1));
    argv.front() = real.data();
    argv.push_back(nullptr);
    execv(real.c_str(), argv.data());
    return complain({fmt::format("{}: {} can not be executed: {}; try: chmod +x {}", place, real,
                                 std::strerror(errno), real)});
}

int dispatch_as_lsphp(const std::string& executed, std::span<char* const> arguments) {
    const LsphpCall call = read_lsphp_arguments(arguments, is_socket(STDIN_FILENO));
    const std::string real = find_real_lsphp(executed);
    StartedAs started_as{fmt::format("started as {}", executed), {}, call.handed_on};
    if (!call.serve) {
        return become_real_lsphp(started_as.place, real, arguments);
    }
    if (!real.empty()) {
        started_as.command = {real};
    }
    std::vector<const char*> argv{"cede"};
    for (const std::string& argument : call.own) {
        argv.push_back(argument.c_str());
    }
    return dispatch(argv, started_as);
}

int command_pool(std::span<const char* const> arguments) {
    const auto command = parse_command(arguments);
    if (!command) {
        return complain(command.error());
    }
    if (command->help) {
        fmt::print("{}", help_text());
        return 0;
    }
    return run_command(*command, environment_of(own_environment()));
}

int start(std::span<char* const> arguments) {
    const auto* executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    if (executed != nullptr && is_lsphp_name(executed)) {
        return dispatch_as_lsphp(executed, arguments);
    }
    if (arguments.size() > 1 && is_command(arguments[1])) {
        return command_pool(arguments.subspan(1));
    }
    return dispatch(arguments, {});
}

}  // namespace
}  // namespace cede::pm

int main(int argc, char** argv) {
    try {
        cede::pm::keep_title_room({argv, static_cast<std::size_t>(argc)});
        return cede::pm::start({argv, static_cast<std::size_t>(argc)});
    } catch (const std::exception& error) {
        cede::pm::log_last_words(error.what());
        return cede::pm::Error::failure;
    }
}
