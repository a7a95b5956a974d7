// SPDX-License-Identifier: Apache-2.0
#include "pm/child_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "children/spawn.h"
#include "children/zygote_protocol.h"
#include "pm/lsapi_environment.h"

namespace cede::pm {
namespace {

using std::string_view_literals::operator""sv;

// Meant for the supervisor.
constexpr std::array not_handed_on{
    "LISTEN_PID"sv,    "LISTEN_FDS"sv, "LISTEN_FDNAMES"sv,  "NOTIFY_SOCKET"sv,  "WATCHDOG_PID"sv,
    "WATCHDOG_USEC"sv, "MAINPID"sv,    "INVOCATION_ID"sv,   "JOURNAL_STREAM"sv, "CEDE_AGENT"sv,
    "CEDE_HIDE"sv,     "CEDE_CHILD"sv, "CEDE_LD_PRELOAD"sv,
};
constexpr std::string_view preload = "LD_PRELOAD";
constexpr std::string_view padding = "LSAPI_PADDING";
constexpr std::string_view quota = "PHP_FCGI_MAX_REQUESTS";
constexpr std::string_view longest_idle = "LSAPI_MAX_IDLE";
// A positive PHP_FCGI_CHILDREN makes php-cgi fork children of its own, and it takes a QUERY_STRING for that
// of a CGI request.
constexpr std::array traps{"PHP_FCGI_CHILDREN"sv, quota, "QUERY_STRING"sv};

bool is_among(std::string_view name, std::span<const std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
}

std::string_view name_of(std::string_view entry) {
    return entry.substr(0, entry.find('='));
}

// lsphp writes a script's path over what follows its argv[0] in memory, up to 47 bytes beyond its end
// (lsapi_main.c, lsapi_execute_script): after the other arguments that is the first environment string.
std::string padding_entry() {
    constexpr std::size_t length = 64;
    return fmt::format("{}={}", padding, std::string(length, 'x'));
}

}  // namespace

std::vector<std::string> child_environment(std::span<const char* const> own, const std::string& agent_path,
                                           std::size_t listeners, std::uint32_t slots) {
    std::vector<std::string> result{padding_entry()};
    std::string preloaded = agent_path;
    for (const std::string_view entry : own) {
        const std::string_view name = name_of(entry);
        const auto fate = lsapi_fate(name);
        if (is_among(name, not_handed_on) || is_among(name, traps) ||
            (fate && *fate != LsapiFate::handed_on)) {
            continue;
        }
        if (name == preload && name.size() < entry.size()) {
            const std::string_view value = entry.substr(name.size() + 1);
            preloaded = fmt::format("{}:{}", agent_path, value);
            result.push_back(fmt::format("{}={}", children::saved_preload_variable, value));
            continue;
        }
        result.emplace_back(entry);
    }
    result.push_back(fmt::format("{}={}", preload, preloaded));
    constexpr int base = children::inherited_base;
    result.push_back(fmt::format("{}={} {} {} {} {} {} {}", children::agent_variable,
                                 children::protocol_version, base, base + 1, base + 2, base + 3, listeners,
                                 slots));
    // php-cgi would end after 500 requests, and lsphp after 300 idle seconds; children end by our decision
    // only.
    result.push_back(fmt::format("{}=0", quota));
    result.push_back(fmt::format("{}=0", longest_idle));
    result.push_back(fmt::format("{}={}:{}:{}", children::hidden_variable, quota, longest_idle, padding));
    return result;
}

std::vector<std::string> lone_environment(std::span<const char* const> own) {
    std::vector<std::string> result{padding_entry()};
    for (const std::string_view entry : own) {
        if (!is_among(name_of(entry), not_handed_on) && name_of(entry) != padding) {
            result.emplace_back(entry);
        }
    }
    return result;
}

}  // namespace cede::pm
