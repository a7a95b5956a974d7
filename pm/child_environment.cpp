// SPDX-License-Identifier: Apache-2.0
#include "pm/child_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "children/spawn.h"
#include "children/zygote_protocol.h"

namespace cede::pm {
namespace {

using std::string_view_literals::operator""sv;

// Meant for the supervisor, or a trap for php-cgi: a positive PHP_FCGI_CHILDREN makes it fork children of its
// own, and a QUERY_STRING is taken for a CGI request's.
constexpr std::array not_handed_on{
    "LISTEN_PID"sv,    "LISTEN_FDS"sv, "LISTEN_FDNAMES"sv, "NOTIFY_SOCKET"sv,   "WATCHDOG_PID"sv,
    "WATCHDOG_USEC"sv, "MAINPID"sv,    "INVOCATION_ID"sv,  "JOURNAL_STREAM"sv,  "PHP_FCGI_CHILDREN"sv,
    "QUERY_STRING"sv,  "CEDE_AGENT"sv, "CEDE_HIDE"sv,      "CEDE_LD_PRELOAD"sv,
};
constexpr std::string_view preload = "LD_PRELOAD";
constexpr std::string_view quota = "PHP_FCGI_MAX_REQUESTS";

}  // namespace

std::vector<std::string> child_environment(std::span<const char* const> own, const std::string& agent_path,
                                           std::size_t listeners, std::uint32_t slots) {
    std::vector<std::string> result;
    std::string preloaded = agent_path;
    bool has_quota = false;
    for (const std::string_view entry : own) {
        const std::string_view name = entry.substr(0, entry.find('='));
        if (std::ranges::find(not_handed_on, name) != not_handed_on.end()) {
            continue;
        }
        if (name == preload && name.size() < entry.size()) {
            const std::string_view value = entry.substr(name.size() + 1);
            preloaded = fmt::format("{}:{}", agent_path, value);
            result.push_back(fmt::format("{}={}", children::saved_preload_variable, value));
            continue;
        }
        has_quota = has_quota || name == quota;
        result.emplace_back(entry);
    }
    result.push_back(fmt::format("{}={}", preload, preloaded));
    constexpr int base = children::inherited_base;
    result.push_back(fmt::format("{}={} {} {} {} {} {} {}", children::agent_variable,
                                 children::protocol_version, base, base + 1, base + 2, base + 3, listeners,
                                 slots));
    // php-cgi would end after 500 requests; children end by our decision only.
    if (!has_quota) {
        result.push_back(fmt::format("{}=0", quota));
        result.push_back(fmt::format("{}={}", children::hidden_variable, quota));
    }
    return result;
}

}  // namespace cede::pm
