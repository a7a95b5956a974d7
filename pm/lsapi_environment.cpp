// SPDX-License-Identifier: Apache-2.0
#include "pm/lsapi_environment.h"

#include <algorithm>
#include <array>

namespace cede::pm {
namespace {

constexpr std::array table{
    LsapiVariable{"LSAPI_PADDING", LsapiFate::ours},
    LsapiVariable{"PHP_LSAPI_CHILDREN", LsapiFate::ours},
    LsapiVariable{"LSAPI_CHILDREN", LsapiFate::ours},
    LsapiVariable{"PHP_LSAPI_MAX_REQUESTS", LsapiFate::ours},
    LsapiVariable{"LSAPI_MAX_REQS", LsapiFate::ours},
    LsapiVariable{"LSAPI_MAX_PROCESS_TIME", LsapiFate::ours},
    LsapiVariable{"LSAPI_PPID_NO_CHECK", LsapiFate::ours},

    LsapiVariable{"LSAPI_STDERR_LOG", LsapiFate::handed_on},
    LsapiVariable{"LSAPI_SLOW_REQ_MSECS", LsapiFate::handed_on},
    LsapiVariable{"LSAPI_ALLOW_CORE_DUMP", LsapiFate::handed_on},
    LsapiVariable{"LSAPI_CLEAN_SHUTDOWN", LsapiFate::handed_on},
    LsapiVariable{"LSAPI_DISABLE_CPAN_BEHAV", LsapiFate::handed_on},
    LsapiVariable{"LSPHP_ENABLE_USER_INI", LsapiFate::handed_on},
    LsapiVariable{"LSPHPRC", LsapiFate::handed_on},

    // How lsphp's parent makes children come and go.
    LsapiVariable{"LSAPI_EXTRA_CHILDREN", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_MAX_IDLE_CHILDREN", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_AVOID_FORK", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_MAX_IDLE", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_PGRP_MAX_IDLE", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_MAX_BUSY_WORKER", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_KEEP_LISTEN", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_ACCEPT_NOTIFY", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_DUMP_DEBUG_INFO", LsapiFate::without_effect},
    // Checkpoint and restore of lsphp's parent.
    LsapiVariable{"LSAPI_CRIU", LsapiFate::without_effect, true},
    LsapiVariable{"LSCAPI_CRIU", LsapiFate::without_effect, true},
    LsapiVariable{"LSAPI_INITIAL_START", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_BACKEND_INITIAL_START", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_SIGNALS", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_UNIQE", LsapiFate::without_effect},
    // Of use to root only, and children are not root.
    LsapiVariable{"LSAPI_SECRET", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_DEFAULT_UID", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_DEFAULT_GID", LsapiFate::without_effect},
    LsapiVariable{"LSAPI_LVE_ENABLE", LsapiFate::without_effect},
    LsapiVariable{"LVE_ENABLE", LsapiFate::without_effect},
};

}  // namespace

std::span<const LsapiVariable> lsapi_variables() noexcept {
    return table;
}

std::optional<LsapiFate> lsapi_fate(std::string_view name) noexcept {
    const auto found = std::ranges::find_if(table, [name](const LsapiVariable& variable) {
        return variable.prefix ? name.starts_with(variable.name) : name == variable.name;
    });
    if (found == table.end()) {
        return std::nullopt;
    }
    return found->fate;
}

std::vector<std::string_view> set_in_vain(std::span<const char* const> own) {
    std::vector<std::string_view> names;
    for (const std::string_view entry : own) {
        const std::string_view name = entry.substr(0, entry.find('='));
        if (lsapi_fate(name) == LsapiFate::without_effect && std::ranges::find(names, name) == names.end()) {
            names.push_back(name);
        }
    }
    return names;
}

}  // namespace cede::pm
