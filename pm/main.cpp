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
