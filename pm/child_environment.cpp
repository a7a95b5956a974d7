// SPDX-License-Identifier: Apache-2.0
#include "pm/child_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "children/spawn.h"
#include "children/zygote_protocol.h"
#include "pm/lsapi_environment.h"
#include "pm/words.h"

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

// Why an administrator can not set this variable of children; empty: nothing speaks against it.
std::string_view objection(std::string_view name) {
    if (name == preload) {
        return "cede needs it for its agent; start cede itself with LD_PRELOAD, which is passed on";
    }
    if (name.starts_with("CEDE_")) {
        return "names that start with CEDE_ are cede's own; choose another name";
    }
    if (name == "PHP_FCGI_CHILDREN") {
        return "children must not fork children of their own; use --children";
    }
    if (name == quota) {
        return "children must not count by themselves; use --max-requests";
    }
    if (name == "QUERY_STRING") {
        return "php-cgi would take it for that of a request; leave it out";
    }
    if (is_among(name, not_handed_on)) {
        return "a service manager speaks by it to cede alone; leave it out";
    }
    if (const auto fate = lsapi_fate(name); fate && *fate != LsapiFate::handed_on) {
        return "lsphp would be controlled by it, which cede does; see docs/moving-from-lsphp.md and leave it "
               "out";
    }
    return {};
}

// POSIX (8.1) promises letters, digits and _ only; containers also have names with '.' and '-'.
bool is_name(std::string_view name) {
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const auto fits = [&is_letter](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
    };
    return !name.empty() && is_letter(name.front()) && std::ranges::all_of(name, fits);
}

}  // namespace

std::expected<std::pair<std::string, std::string>, std::string> parse_variable(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
        return std::unexpected(
            fmt::format("{} has no '='; write it as NAME=VALUE, or as {}=${} to pass on what cede has",
                        quoted(text), is_name(text) ? text : "NAME", is_name(text) ? text : "NAME"));
    }
    const std::string_view name = text.substr(0, equals);
    if (!is_name(name)) {
        return std::unexpected(fmt::format(
            "{} is no name of a variable; use letters, digits and _, and no digit in front", quoted(name)));
    }
    if (const std::string_view reason = objection(name); !reason.empty()) {
        return std::unexpected(fmt::format("{} can not be set: {}", name, reason));
    }
    return std::pair{std::string{name}, std::string{text.substr(equals + 1)}};
}

std::vector<std::string> chosen_environment(std::span<const char* const> own,
                                            const EnvironmentOptions& options) {
    std::vector<std::string> result;
    if (!options.clear) {
        for (const std::string_view entry : own) {
            if (!options.set.contains(name_of(entry))) {
                result.emplace_back(entry);
            }
        }
    }
    const Environment known = environment_of(own);
    for (const auto& [name, value] : options.set) {
        if (!value.starts_with('$')) {
            result.push_back(fmt::format("{}={}", name, value));
            continue;
        }
        const auto found = known.find(std::string_view{value}.substr(1));
        result.push_back(fmt::format("{}={}", name, found == known.end() ? "" : found->second));
    }
    return result;
}

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
