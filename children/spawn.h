// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

namespace cede::children {

// A program to execute and all that it gets. What is not listed is not inherited.
struct SpawnRequest {
    std::vector<std::string> command;      // [0] is the path, not searched for
    std::vector<std::string> environment;  // NAME=VALUE, complete
    int stdin_fd = -1;
    int output_fd = 2;               // becomes 1 and 2
    std::vector<int> inherited_fds;  // become inherited_base, inherited_base + 1, ...
    bool change_identity = false;
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> supplementary;
    rlimit open_files{RLIM_INFINITY, RLIM_INFINITY};  // RLIM_INFINITY: left as it is
};

// The number of the first of SpawnRequest::inherited_fds in the new program.
inline constexpr int inherited_base = 100;

// How far a start got before the kernel refused.
struct SpawnError {
    enum class Step : std::uint8_t {
        fork,
        descriptors,
        limits,
        groups,
        group,
        user,
        execute
    } step = Step::fork;
    int error = 0;  // errno
};
[[nodiscard]] const char* describe(SpawnError::Step step) noexcept;

// Forks and executes: own session, all signals at their defaults and unblocked. Returns the process id once
// the program has been executed; a failure in the new process before that comes back as the error, the
// process being reaped. Blocks for the time of an execve(2).
[[nodiscard]] std::expected<pid_t, SpawnError> spawn(const SpawnRequest& request);

}  // namespace cede::children
