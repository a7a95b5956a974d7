// SPDX-License-Identifier: Apache-2.0
#include "pm/run.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <iterator>
#include <memory>
#include <signal.h>
#include <span>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "children/scoreboard_map.h"
#include "children/spawn.h"
#include "pm/config_value.h"
#include "pm/control_socket.h"
#include "pm/environment_defaults.h"
#include "pm/inherited.h"
#include "pm/listener.h"
#include "pm/log.h"
#include "pm/lone_connection.h"
#include "pm/lsapi_environment.h"
#include "pm/parent_process.h"
#include "pm/preflight.h"
#include "pm/process_title.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

using children::UniqueFd;

// A web server that executes us (OpenLiteSpeed) has a socket as descriptor 1 that nobody reads.
void keep_off_a_socket_on_stdout() {
    struct stat status {};
    if (fstat(STDOUT_FILENO, &status) == 0 && S_ISSOCK(status.st_mode)) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
    }
}

// Where stock lsphp ends with its parent, so do we; only a web server that gave us its own listener is one.
void follow_parent(Supervisor& supervisor, std::span<const Listener> listeners, bool from_systemd,
                   const Environment& environment) {
    if (listeners.front().created || from_systemd || !ends_with_parent(environment)) {
        return;
    }
    if (UniqueFd parent = parent_handle(getppid())) {
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

// What is asked for by a signal is done once we serve: Supervisor::run() lets them in.
void hold_signals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : {SIGHUP, SIGUSR1, SIGUSR2}) {
        sigaddset(&held, number);
    }
    sigprocmask(SIG_BLOCK, &held, nullptr);
}

std::unexpected<Error> all_of(const std::vector<Error>& errors) {
    std::vector<std::string_view> lines;
    std::ranges::transform(errors, std::back_inserter(lines), &Error::message);
    return std::unexpected{Error{fmt::format("{}", fmt::join(lines, "; ")), errors.front().exit_status}};
}

}  // namespace

int complain(const Error& error) {
    log_last_words(error.message);
    return error.exit_status;
}

std::expected<Invocation, Error> Invoked::parse() const {
    std::vector<const char*> argv;
    std::ranges::transform(arguments, std::back_inserter(argv), &std::string::c_str);
    return parse_invocation(argv, environment_of(own_environment()), started_as);
}

std::expected<void, Error> check_settings(const Config& config, std::uint32_t slots) {
    auto objections = check_all(config, geteuid());
    if (auto log = check_log(config); !log) {
        objections.push_back(std::move(log.error()));
    }
    if (slots_for(config) > slots) {
        objections.push_back({fmt::format("{}: there is room for {} children; restart cede for more",
                                          where(config, "children"), most_children_in(slots))});
    }
    if (!objections.empty()) {
        return all_of(objections);
    }
    return {};
}

Refresh refresh_of(const Invoked& invoked, std::size_t listeners, std::uint32_t slots) {
    return [&invoked, listeners, slots](const Config& running) -> std::expected<Fresh, Error> {
        auto invocation = invoked.parse();
        if (!invocation) {
            return std::unexpected{invocation.error()};
        }
        Fresh fresh;
        fresh.config = std::move(invocation->config);
        fresh.kept = keep_what_needs_restart(fresh.config, running);
        if (auto checked = check_settings(fresh.config, slots); !checked) {
            return std::unexpected{checked.error()};
        }
        auto start = prepare_start(fresh.config, listeners, slots, invoked.self.open_files);
        if (!start) {
            return std::unexpected{start.error()};
        }
        fresh.start = std::move(*start);
        return fresh;
    };
}

int serve_until_stopped(Supervisor& supervisor, const Config& config) {
    // Children of the zygote become ours when the process between ends (prctl(2)).
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    show_title("supervisor", config.title);
    const int status = supervisor.run();
    if (status != 0 && config.log != "stderr") {
        fmt::print(stderr, "cede: error: it could not start; see the log ({}), which says why\n", config.log);
    }
    return status;
}

int run(const Config& config, const Invoked& invoked) {
    keep_off_a_socket_on_stdout();
    const Environment environment = environment_of(own_environment());
    const char* const listen_pid = std::getenv("LISTEN_PID");
    const char* const listen_fds = std::getenv("LISTEN_FDS");
    const bool from_systemd = handed_over_by_systemd(getpid(), listen_pid, listen_fds);
    if (config.listen.empty() && !from_systemd && connection_on_descriptor_0() &&
        is_for_lsphp(config, environment)) {
        return complain(become_lone_lsphp(config, geteuid()));
    }
    // A reader of the log that has gone, or a reload or a rotation of logs at this very moment, ends nothing.
    signal(SIGPIPE, SIG_IGN);
    hold_signals();
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
    const std::size_t listeners = opened->listeners.size();
    const std::uint32_t slots = slots_for(config);
    auto start = prepare_start(config, listeners, slots, invoked.self.open_files);
    if (!start) {
        give_back(opened->listeners);
        return complain(start.error());
    }
    for (const std::string& warning : opened->warnings) {
        log(LogLevel::warning, "{}", warning);
    }
    raise_open_files(config);
    auto scoreboard = children::ScoreboardMap::create(slots);
    if (!scoreboard) {
        return complain({fmt::format("can't make the scoreboard: {}", std::strerror(scoreboard.error()))});
    }
    announce(config, opened->listeners);
    auto control = open_control(config, opened->listeners.front().name, environment);
    if (!control) {
        give_back(opened->listeners);
        return complain(control.error());
    }
    Supervisor supervisor{config,
                          opened->listeners,
                          std::move(*scoreboard),
                          std::move(*start),
                          refresh_of(invoked, listeners, slots),
                          invoked.self};
    if (control->fd) {
        supervisor.control_by(std::move(*control));
    }
    follow_parent(supervisor, opened->listeners, from_systemd, environment);
    return serve_until_stopped(supervisor, config);
}

}  // namespace cede::pm
