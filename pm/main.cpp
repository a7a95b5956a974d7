// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <expected>
#include <fcntl.h>
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
#include "pm/config.h"
#include "pm/environment_defaults.h"
#include "pm/identity.h"
#include "pm/inherited.h"
#include "pm/listener.h"
#include "pm/log.h"
#include "pm/lone_connection.h"
#include "pm/lsapi_environment.h"
#include "pm/lsphp_name.h"
#include "pm/parent_process.h"
#include "pm/preflight.h"
#include "pm/process_title.h"
#include "pm/startup.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

int complain(const Error& error) {
    log_last_words(error.message);
    return error.exit_status;
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

// How this process was started, which is also where a reload starts from.
struct Invoked {
    std::vector<std::string> arguments;
    StartedAs started_as;

    [[nodiscard]] std::expected<Invocation, Error> parse() const {
        std::vector<const char*> argv;
        std::ranges::transform(arguments, std::back_inserter(argv), &std::string::c_str);
        return parse_invocation(argv, environment_of(own_environment()), started_as);
    }
};

std::unexpected<Error> all_of(const std::vector<Error>& errors) {
    std::vector<std::string_view> lines;
    std::ranges::transform(errors, std::back_inserter(lines), &Error::message);
    return std::unexpected{Error{fmt::format("{}", fmt::join(lines, "\n")), errors.front().exit_status}};
}

std::expected<Fresh, Error> refresh(const Invoked& invoked, const Config& running, std::size_t listeners,
                                    std::uint32_t slots, const rlimit& open_files) {
    auto invocation = invoked.parse();
    if (!invocation) {
        return std::unexpected{invocation.error()};
    }
    Fresh fresh;
    fresh.config = std::move(invocation->config);
    fresh.kept = keep_what_needs_restart(fresh.config, running);
    auto objections = check_all(fresh.config, geteuid());
    if (auto log = check_log(fresh.config); !log) {
        objections.push_back(std::move(log.error()));
    }
    if (!objections.empty()) {
        return all_of(objections);
    }
    if (slots_for(fresh.config) > slots) {
        return std::unexpected{Error{fmt::format("{}: there is room for {} children; restart cede for more",
                                                 where(fresh.config, "children"), slots / 4)}};
    }
    auto start = prepare_start(fresh.config, listeners, slots, open_files);
    if (!start) {
        return std::unexpected{start.error()};
    }
    fresh.start = std::move(*start);
    return fresh;
}

int serve(const Config& config, const Invoked& invoked) {
    keep_off_a_socket_on_stdout();
    const Environment environment = environment_of(own_environment());
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
    rlimit open_files{};
    getrlimit(RLIMIT_NOFILE, &open_files);
    const std::size_t listeners = opened->listeners.size();
    const std::uint32_t slots = slots_for(config);
    auto start = prepare_start(config, listeners, slots, open_files);
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
    raise_open_files(config);
    // Children of the zygote become ours when the process between ends (prctl(2)).
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    auto scoreboard = children::ScoreboardMap::create(slots);
    if (!scoreboard) {
        return complain({fmt::format("can't make the scoreboard: {}", std::strerror(scoreboard.error()))});
    }
    announce(config, opened->listeners);
    Supervisor supervisor{config, opened->listeners, std::move(*scoreboard), std::move(*start),
                          [=, &invoked](const Config& running) {
                              return refresh(invoked, running, listeners, slots, open_files);
                          }};
    follow_parent(supervisor, opened->listeners, from_systemd, environment);
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
    const Invoked invoked{{arguments.begin(), arguments.end()}, started_as};
    const auto invocation = invoked.parse();
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
            return serve(invocation->config, invoked);
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

int start(std::span<char* const> arguments) {
    const auto* executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    if (executed != nullptr && is_lsphp_name(executed)) {
        return dispatch_as_lsphp(executed, arguments);
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
