// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "pm/command.h"
#include "pm/command_run.h"
#include "pm/config.h"
#include "pm/handover.h"
#include "pm/log.h"
#include "pm/lsphp_name.h"
#include "pm/option_table.h"
#include "pm/preflight.h"
#include "pm/process_title.h"
#include "pm/run.h"
#include "pm/startup.h"

namespace cede::pm {
namespace {

bool is_socket(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
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

int run_or_check_takeover(const Config& config, const Invoked& invoked,
                          const std::optional<Predecessor>& predecessor) {
    if (predecessor && predecessor->only_asked) {
        return check_takeover(config, *predecessor);
    }
    // Before anything else is opened that could get its number.
    if (config.ready_fd && fcntl(*config.ready_fd, F_GETFD) < 0) {
        return complain(
            {fmt::format("{}: descriptor {} is not open; open it for cede, or leave the option out",
                         where(config, "ready-fd"), *config.ready_fd)});
    }
    if (auto opened = open_log(config); !opened) {
        return complain(opened.error());
    }
    return run(config, invoked);
}

int dispatch(const Invoked& invoked, const std::optional<Predecessor>& predecessor) {
    if (predecessor && !predecessor->only_asked) {
        return take_over(invoked, *predecessor);
    }
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
            return run_or_check_takeover(invocation->config, invoked, predecessor);
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

int dispatch_as_lsphp(Self self, std::span<char* const> arguments,
                      const std::optional<Predecessor>& predecessor) {
    const LsphpCall call =
        read_lsphp_arguments(arguments, predecessor.has_value() || is_socket(STDIN_FILENO));
    const std::string& executed = self.executed;
    const std::string real = find_real_lsphp(executed);
    StartedAs started_as{fmt::format("started as {}", executed), {}, call.handed_on};
    if (!call.serve) {
        return become_real_lsphp(started_as.place, real, arguments);
    }
    if (!real.empty()) {
        started_as.command = {real};
    }
    std::vector<std::string> own{"cede"};
    own.insert(own.end(), call.own.begin(), call.own.end());
    return dispatch({std::move(own), std::move(started_as), std::move(self)}, predecessor);
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

// The path that we were started by, in full. Links are left alone: their names may mean something.
std::string executed_path() {
    const auto* const executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    std::error_code ignored;
    return executed == nullptr ? std::string{} : std::filesystem::absolute(executed, ignored).string();
}

int start(std::span<char* const> arguments) {
    const auto predecessor = find_predecessor();
    Self self{executed_path(), {arguments.begin(), arguments.end()}, {}};
    getrlimit(RLIMIT_NOFILE, &self.open_files);
    if (predecessor) {
        // Whoever falls back is executed by a descriptor, which has no name.
        if (const auto handover = read_handover(predecessor->file.get(), Reading::look)) {
            self.executed = handover->executed;
        }
    }
    if (is_lsphp_name(self.executed)) {
        return dispatch_as_lsphp(std::move(self), arguments, predecessor);
    }
    if (arguments.size() > 1 && is_command(arguments[1])) {
        return command_pool(arguments.subspan(1));
    }
    return dispatch({{arguments.begin(), arguments.end()}, {}, std::move(self)}, predecessor);
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
