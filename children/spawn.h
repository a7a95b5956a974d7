// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

namespace cede::children {

// Where and how a program runs. What is not set stays as it is for whoever starts it.
struct Surroundings {
    std::optional<rlimit> open_files;
    std::optional<rlimit> core;   // bytes
    std::optional<int> nice;      // setpriority(2)
    std::optional<mode_t> umask;  // permission bits
    std::string root;             // chroot(2); the program then starts in its / unless `directory` is set
    std::string directory;        // chdir(2), within the root
};

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
    Surroundings surroundings;
};

// The number of the first of SpawnRequest::inherited_fds in the new program.
inline constexpr int inherited_base = 100;

// How far a start got before the kernel refused.
struct SpawnError {
    enum class Step : std::uint8_t {
        fork,
        descriptors,
        open_files,
        core,
        nice,
        root,
        directory,
        groups,
        group,
        user,
        execute
    } step = Step::fork;
    int error = 0;  // errno
};
[[nodiscard]] const char* describe(SpawnError::Step step) noexcept;

// Puts the calling process into these surroundings, step by step in the order of SpawnError::Step: limits and
// priority may need what a change of root or user takes away. Stops at the first refusal. Only
// async-signal-safe calls (signal-safety(7)) but for what the result does.
[[nodiscard]] std::expected<void, SpawnError> enter(const Surroundings& surroundings) noexcept;

// Does all that a start does to surroundings and identity, in a process of its own that executes nothing and
// ends. In it, `look` is called where the program would be looked up, still with our identity. Returns what
// `look` does, once the identity could be changed as well. Only for a process with one thread.
[[nodiscard]] std::expected<std::string, SpawnError> rehearse(const SpawnRequest& request,
                                                              const std::function<std::string()>& look);

// What execve(2) takes: pointers into `strings`, which must outlive them, and a null at the end.
[[nodiscard]] std::vector<char*> pointers(const std::vector<std::string>& strings);

// Forks and executes: own session, all signals at their defaults and unblocked. Returns the process id once
// the program has been executed; a failure in the new process before that comes back as the error, the
// process being reaped. Blocks for the time of an execve(2).
[[nodiscard]] std::expected<pid_t, SpawnError> spawn(const SpawnRequest& request);

}  // namespace cede::children
