// SPDX-License-Identifier: Apache-2.0
#include "pm/startup.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pm/child_environment.h"
#include "pm/child_output.h"
#include "pm/identity.h"
#include "pm/limits.h"
#include "pm/log.h"
#include "pm/surroundings.h"

namespace cede::pm {
namespace {

// For the loop itself, the log, the netlink sockets, what a child's start needs for a moment, and the output
// of what children have left behind.
constexpr rlim_t descriptors_for_ourselves = 64 + ChildOutput::most_gone;

constexpr std::uint32_t slots_a_child = 4;

// Three for each child, and twice as many children while one generation takes the other's place.
rlim_t descriptors_beside(const Config& config) noexcept {
    return 6 * rlim_t{config.children} + descriptors_for_ourselves;
}

// The path that a children's user could not open, because of a folder on the way, is none for the loader: it
// is given the open file instead.
std::string preload_path(std::size_t listeners) {
    constexpr std::size_t before_listeners = 3;  // channel, scoreboard, handoff queue
    return fmt::format("/proc/self/fd/{}", children::inherited_base + before_listeners + listeners);
}

}  // namespace

std::vector<const char*> own_environment() {
    std::vector<const char*> own;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        own.push_back(*entry);
    }
    return own;
}

std::vector<std::string> environment_with(std::vector<std::string> more) {
    const auto own = own_environment();
    std::vector<std::string> all{own.begin(), own.end()};
    std::ranges::move(more, std::back_inserter(all));
    return all;
}

std::expected<std::string, Error> find_agent(const Config& config) {
    if (!config.agent.empty()) {
        if (access(config.agent.c_str(), R_OK) == 0) {
            return config.agent;
        }
        return std::unexpected{
            Error{fmt::format("{}: can't read the agent {}: {}; give the path of libcede-agent.so",
                              where(config, "agent"), config.agent, std::strerror(errno))}};
    }
    std::error_code ignored;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    for (const std::filesystem::path& folder : {self.parent_path(), std::filesystem::path{CEDE_AGENT_DIR}}) {
        const std::string candidate = folder / "libcede-agent.so";
        if (access(candidate.c_str(), R_OK) == 0) {
            return candidate;
        }
    }
    return std::unexpected{
        Error{fmt::format("can't find libcede-agent.so beside {} or in {}; give its path with --agent",
                          self.string(), CEDE_AGENT_DIR)}};
}

std::uint32_t slots_for(const Config& config) noexcept {
    constexpr std::uint32_t least = 1024;  // pages of memory that nobody touches
    return std::max(least, slots_a_child * config.children);
}

std::uint32_t most_children_in(std::uint32_t slots) noexcept {
    return slots / slots_a_child;
}

void raise_open_files(const Config& config) noexcept {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit wanted = before;
    // Parked connections are descriptors of ours, and those that have become readable and wait for a child
    // are as many again.
    const rlim_t needed = 2 * rlim_t{config.max_parked} + descriptors_beside(config);
    wanted.rlim_cur = std::max(before.rlim_cur, needed);
    wanted.rlim_max = std::max(before.rlim_max, needed);
    if (setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
        // Only root may raise the hard limit.
        wanted = {std::max(before.rlim_cur, std::min(needed, before.rlim_max)), before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &wanted);
    }
}

Dispatcher::Room room_within_limit(const Config& config) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t others = descriptors_beside(config);
    const rlim_t held =
        std::min(limit.rlim_cur > others ? limit.rlim_cur - others : 1, 2 * rlim_t{config.max_parked});
    const rlim_t parked = std::min<rlim_t>(held - held / 8, config.max_parked);
    if (parked < config.max_parked) {
        log(config.origins.contains("max-parked") ? LogLevel::warning : LogLevel::info,
            "room for {} parked connections only, not {}: the limit of open files is {}; raise it "
            "(LimitNOFILE=, "
            "ulimit -Hn) or lower --max-parked",
            parked, config.max_parked, limit.rlim_cur);
    }
    return {parked, held};
}

std::expected<Start, Error> prepare_start(const Config& config, std::size_t listeners, std::uint32_t slots,
                                          const rlimit& open_files) {
    const auto identity = resolve_identity(config, geteuid());
    if (!identity) {
        return std::unexpected{identity.error()};
    }
    const auto path = find_agent(config);
    if (!path) {
        return std::unexpected{path.error()};
    }
    children::UniqueFd agent{open(path->c_str(), O_RDONLY | O_CLOEXEC)};
    if (!agent) {
        return std::unexpected{
            Error{fmt::format("can't open the agent {}: {}", *path, std::strerror(errno))}};
    }
    const auto chosen = chosen_environment(own_environment(), config.environment);
    std::vector<const char*> entries;
    std::ranges::transform(chosen, std::back_inserter(entries), &std::string::c_str);
    children::SpawnRequest request;
    request.command = config.command;
    request.environment = child_environment(entries, preload_path(listeners), listeners, slots);
    request.inherited_fds = {agent.get()};
    request.surroundings = surroundings_of(config);
    if (!config.rlimit_nofile) {
        request.surroundings.open_files = open_files;
    }
    take_identity(request, *identity);
    return Start{std::move(agent), std::move(request), config.spawn == SpawnMode::exec};
}

std::vector<std::string> keep_what_needs_restart(Config& fresh, const Config& running) {
    std::vector<std::string> kept;
    const auto keep = [&](const char* name, auto Config::*setting) {
        if (fresh.*setting != running.*setting) {
            fresh.*setting = running.*setting;
            kept.emplace_back(name);
        }
    };
    keep("--listen", &Config::listen);
    keep("--listen-mode", &Config::listen_mode);
    keep("--listen-owner", &Config::listen_owner);
    keep("--listen-group", &Config::listen_group);
    keep("--control", &Config::control);
    // Open connections speak it.
    keep("--protocol", &Config::protocol);
    return kept;
}

}  // namespace cede::pm
