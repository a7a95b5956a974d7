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

std::unexpected<Error> all_of(const std::vector<Error>& errors) {
    std::vector<std::string_view> lines;
    std::ranges::transform(errors, std::back_inserter(lines), &Error::message);
    return std::unexpected{Error{fmt::format("{}", fmt::join(lines, "; ")), errors.front().exit_status}};
}

std::expected<void, Error> check_settings(const Config& config, std::uint32_t slots) {
    auto objections = check_all(config, geteuid());
    if (auto log = check_log(config); !log) {
        objections.push_back(std::move(log.error()));
    }
    if (slots_for(config) > slots) {
        objections.push_back({fmt::format("{}: there is room for {} children; restart cede for more",
                                          where(config, "children"), slots / 4)});
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

// What is asked for by a signal is done once we serve: Supervisor::run() lets them in.
void hold_signals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : {SIGHUP, SIGUSR1, SIGUSR2}) {
        sigaddset(&held, number);
    }
    sigprocmask(SIG_BLOCK, &held, nullptr);
}

// Children of the zygote become ours when the process between ends (prctl(2)).
void adopt_grandchildren() {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

int serve_until_stopped(Supervisor& supervisor, const Config& config) {
    show_title("supervisor", config.title);
    const int status = supervisor.run();
    if (status != 0 && config.log != "stderr") {
        fmt::print(stderr, "cede: error: it could not start; see the log ({}), which says why\n", config.log);
    }
    return status;
}

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

void keep_running_settings(Config& config, const Handover::Fixed& fixed) {
    Config running;
    running.listen = fixed.listen;
    running.listen_mode = fixed.listen_mode;
    running.listen_owner = fixed.listen_owner;
    running.listen_group = fixed.listen_group;
    running.control = fixed.control;
    running.protocol = static_cast<protocol::Protocol>(fixed.protocol);
    (void)keep_what_needs_restart(config, running);
}

// What has to work before anything is taken from the one before. Everything in it is a copy.
struct Taken {
    Handover handover;
    Invoked invoked;
    Config config;
    std::vector<Listener> listeners;
    std::unique_ptr<Supervisor> supervisor;
};

std::expected<std::unique_ptr<Taken>, Error> prepare_takeover(const Config& config, const Invoked& invoked,
                                                              const Predecessor& predecessor) {
    auto handover = read_handover(predecessor.file.get(), Reading::take_over);
    if (!handover) {
        return std::unexpected{Error{handover.error()}};
    }
    auto taken = std::make_unique<Taken>(Taken{std::move(*handover), invoked, config, {}, {}});
    const Handover& left = taken->handover;
    taken->invoked.self.open_files = {left.files_soft, left.files_hard};
    keep_running_settings(taken->config, left.fixed);
    taken->config.ready_fd.reset();  // was told, and closed: the number may be anybody's by now
    for (const Handover::Socket& socket : left.listeners) {
        taken->listeners.push_back(listener_of(socket));
    }
    auto scoreboard = children::ScoreboardMap::adopt(copy_of(left.scoreboard));
    if (!scoreboard) {
        return std::unexpected{
            Error{fmt::format("can't map the scoreboard: {}", std::strerror(scoreboard.error()))}};
    }
    const std::uint32_t slots = scoreboard->slots();
    const std::size_t listeners = taken->listeners.size();
    if (auto checked = check_settings(taken->config, slots); !checked) {
        return std::unexpected{checked.error()};
    }
    auto start = prepare_start(taken->config, listeners, slots, taken->invoked.self.open_files);
    if (!start) {
        return std::unexpected{start.error()};
    }
    raise_open_files(taken->config);
    taken->supervisor = std::make_unique<Supervisor>(
        taken->config, taken->listeners, std::move(*scoreboard), std::move(*start),
        refresh_of(taken->invoked, listeners, slots), taken->invoked.self,
        Handoff::Ends{copy_of(left.handoff_ours), copy_of(left.handoff_theirs)});
    return taken;
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
    adopt_grandchildren();
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

int take_over(const Config& config, const Invoked& invoked, const Predecessor& predecessor) {
    std::expected<std::unique_ptr<Taken>, Error> taken = std::unexpected{Error{"out of memory"}};
    try {
        taken = prepare_takeover(config, invoked, predecessor);
    } catch (const std::exception& error) {
        taken = std::unexpected{Error{error.what()}};
    }
    if (!taken) {
        return fall_back(predecessor, taken.error());
    }
    const Handover& left = (*taken)->handover;
    signal(SIGPIPE, SIG_IGN);
    adopt_grandchildren();
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
    keep_running_settings(fresh, handover->fixed);
    if (auto checked = check_settings(fresh, slots_for(fresh)); !checked) {
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
    std::vector<std::string> environment;
    for (const char* const entry : own_environment()) {
        environment.emplace_back(entry);
    }
    environment.push_back(fmt::format("{}={}", handover_variable, predecessor.file.get()));
    environment.push_back(fmt::format("{}={}", handover_failed_variable, error.message));
    std::vector<std::string> arguments = handover->arguments;
    fcntl(predecessor.file.get(), F_SETFD, 0);
    fexecve(handover->executable, children::pointers(arguments).data(),
            children::pointers(environment).data());
    return complain({fmt::format("{}; and the program of before can't be executed any more: {}",
                                 error.message, std::strerror(errno))});
}

}  // namespace cede::pm
