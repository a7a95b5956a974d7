// SPDX-License-Identifier: Apache-2.0
#include "pm/lone_connection.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "children/spawn.h"
#include "pm/child_environment.h"
#include "pm/log.h"
#include "pm/preflight.h"
#include "pm/surroundings.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

constexpr std::string_view remedy = "set PHP_LSAPI_CHILDREN=10 in the env of the extProcessor";

}  // namespace

bool is_for_lsphp(const Config& config, const Environment& environment) noexcept {
    if (config.protocol != protocol::Protocol::unknown) {
        return config.protocol == protocol::Protocol::lsapi;
    }
    const std::string_view program = config.command.front();
    return environment.contains("LSAPI_PADDING") ||
           program.substr(program.rfind('/') + 1).starts_with("lsphp");
}

Error become_lone_lsphp(const Config& config, uid_t euid) {
    if (euid == 0) {
        return Error{
            fmt::format("descriptor 0 is one connection, not a listening socket, and cede is root, "
                        "as whom it starts no lsphp for one; {}, and another user as its extUser",
                        remedy)};
    }
    if (const auto objections = check_start(config, euid); !objections.empty()) {
        return objections.front();
    }
    log(LogLevel::warning,
        "descriptor 0 is one connection, not a listening socket: {} serves it alone, without cede; {}, and "
        "cede is started once, for all connections",
        config.command.front(), remedy);
    std::vector<const char*> own;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        own.push_back(*entry);
    }
    const auto chosen = chosen_environment(own, config.environment);
    own.clear();
    for (const std::string& entry : chosen) {
        own.push_back(entry.c_str());
    }
    const auto environment = lone_environment(own);
    if (const auto entered = children::enter(surroundings_of(config)); !entered) {
        return Error{explain(entered.error(), config)};
    }
    ::execve(config.command.front().c_str(), children::pointers(config.command).data(),
             children::pointers(environment).data());
    return Error{fmt::format("{} {}: it can not be executed: {}; correct the command",
                             where(config, "command"), quoted(config.command.front()),
                             std::generic_category().message(errno))};
}

}  // namespace cede::pm
