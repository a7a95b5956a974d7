// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <expected>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "children/spawn.h"
#include "children/unique_fd.h"
#include "pm/config.h"
#include "pm/dispatcher.h"
#include "pm/error.h"

namespace cede::pm {

// What a configuration needs of the machine before children can be started by it.

// libcede-agent.so: where --agent says, else beside the executable, else in the library directory.
[[nodiscard]] std::expected<std::string, Error> find_agent(const Config& config);

// Everything for the start of children but the descriptors of the supervisor's own. `request` has the
// descriptor of `agent` in it, which must stay open for as long as children are started by it.
struct Start {
    children::UniqueFd agent;
    children::SpawnRequest request;
    bool each_by_itself = false;  // --spawn exec
};
// `open_files`: what children get as their limit where the configuration says nothing.
[[nodiscard]] std::expected<Start, Error> prepare_start(const Config& config, std::size_t listeners,
                                                        std::uint32_t slots, const rlimit& open_files);

// NAME=VALUE of this process, as environ(7).
[[nodiscard]] std::vector<const char*> own_environment();

// The same with these behind it.
[[nodiscard]] std::vector<std::string> environment_with(std::vector<std::string> more);

// Room for how many children's slots a configuration gets: those of two generations, and more, so that their
// number can be raised without a restart.
[[nodiscard]] std::uint32_t slots_for(const Config& config) noexcept;
// The most children that there is such room for in so many slots.
[[nodiscard]] std::uint32_t most_children_in(std::uint32_t slots) noexcept;

// Raises our own limit of open files as far as this configuration may need and the kernel lets us.
void raise_open_files(const Config& config) noexcept;

// What fits into that limit; says so in the log if it is less than --max-parked.
[[nodiscard]] Dispatcher::Room room_within_limit(const Config& config);

// How this process was started: by what, and with which limit of open files.
struct Self {
    std::string executed;                // the path, in full
    std::vector<std::string> arguments;  // as main() got them
    rlimit open_files{};
};

// A configuration read anew while children of another one run.
struct Fresh {
    Config config;
    Start start;
    // Settings whose new value needs a restart, as --NAME; `config` has the running value.
    std::vector<std::string> kept;
};
// From the same command line and the same file as `running` was. The error says what is wrong with it, all
// that is known, one line each.
using Refresh = std::function<std::expected<Fresh, Error>(const Config& running)>;

// Gives `fresh` the running values of settings that can not be changed while cede runs. Returns the names of
// those that differed.
[[nodiscard]] std::vector<std::string> keep_what_needs_restart(Config& fresh, const Config& running);

}  // namespace cede::pm
