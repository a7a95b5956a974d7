// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "children/spawn.h"
#include "pm/config.h"
#include "pm/error.h"

namespace cede::pm {

// Who the children are.
struct Identity {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> supplementary;  // for setgroups(2), with gid
    std::string name;                  // of the user; a number if it has none
    bool change = false;               // false: the children stay what the supervisor is
};

// From --user, --group and --allow-root, for a supervisor that runs as `euid`. Children are root only with
// --allow-root. An unknown name, a missing --user and a change that only root could make are errors (exit
// status 1) that say where the setting stands.
std::expected<Identity, Error> resolve_identity(const Config& config, uid_t euid);

// Makes it that of what is going to be started.
void take_identity(children::SpawnRequest& request, const Identity& identity);

// A name, or a number that need not exist. `place` starts the message.
std::expected<uid_t, Error> resolve_user(std::string_view name_or_number, std::string_view place);
std::expected<gid_t, Error> resolve_group(std::string_view name_or_number, std::string_view place);

}  // namespace cede::pm
