// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "children/unique_fd.h"
#include "pm/config.h"
#include "pm/error.h"
#include "pm/handover.h"
#include "pm/startup.h"

namespace cede::pm {

// An error that ends the program, said where whoever started it looks. Returns its exit status.
int complain(const Error& error);

// The command line as it counts, which is also where a reload starts from, and the real one.
struct Invoked {
    std::vector<std::string> arguments;
    StartedAs started_as;
    Self self;

    [[nodiscard]] std::expected<Invocation, Error> parse() const;
};

class Supervisor;

// All that can be known of a configuration before children are started by it; `slots`: how many the
// scoreboard has.
[[nodiscard]] std::expected<void, Error> check_settings(const Config& config, std::uint32_t slots);

// `invoked` must outlive it.
[[nodiscard]] Refresh refresh_of(const Invoked& invoked, std::size_t listeners, std::uint32_t slots);

// Returns the exit status.
int serve_until_stopped(Supervisor& supervisor, const Config& config);

// What the environment says about the program that was here before (pm/handover.h). Takes it out of there.
struct Predecessor {
    children::UniqueFd file;
    bool only_asked = false;  // whether we could take over
    std::string failure;      // of the program that has tried before us
};
[[nodiscard]] std::optional<Predecessor> find_predecessor();

// A pool from its start to its end, or from a handover on. Returns the exit status.
int run(const Config& config, const Invoked& invoked);
int take_over(const Invoked& invoked, const Predecessor& predecessor);

// Whether take_over() would work; what is in its way is said.
int check_takeover(const Config& config, const Predecessor& predecessor);

// Before anything of the handover is touched: the program that was here before goes on, if it can be found,
// and says why. Returns the exit status otherwise.
int fall_back(const Predecessor& predecessor, const Error& error);

}  // namespace cede::pm
