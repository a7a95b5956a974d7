// SPDX-License-Identifier: Apache-2.0
#include "children/spawn.h"

#include <cerrno>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children/unique_fd.h"

namespace cede::children {
namespace {

using Step = SpawnError::Step;

// Everything that the new process needs between fork and exec, where only async-signal-safe calls are
// allowed.
struct Prepared {
    const SpawnRequest& request;
    std::vector<char*> argv;
    std::vector<char*> environment;
    std::vector<int> high;  // room for the descriptors' temporary numbers
    int report = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const std::string& string : strings) {
        result.push_back(const_cast<char*>(string.c_str()));
    }
    result.push_back(nullptr);
    return result;
}

[[noreturn]] void fail(const Prepared& prepared, Step step) noexcept {
    const SpawnError error{step, errno};
    (void)!::write(prepared.report, &error, sizeof error);
    _exit(127);
}

void reset_signals() noexcept {
    for (int number = 1; number < NSIG; ++number) {
        signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Two passes, for a source may have a number that another one is to get.
bool place_descriptors(Prepared& prepared) noexcept {
    const SpawnRequest& request = prepared.request;
    const auto count = static_cast<int>(request.inherited_fds.size());
    const int above = inherited_base + count;
    const int input = fcntl(request.stdin_fd, F_DUPFD_CLOEXEC, above);
    const int output = fcntl(request.output_fd, F_DUPFD_CLOEXEC, above);
    prepared.report = fcntl(prepared.report, F_DUPFD_CLOEXEC, above);
    if (input < 0 || output < 0 || prepared.report < 0) {
        return false;
    }
    for (std::size_t i = 0; i < request.inherited_fds.size(); ++i) {
        prepared.high[i] = fcntl(request.inherited_fds[i], F_DUPFD_CLOEXEC, above);
        if (prepared.high[i] < 0) {
            return false;
        }
    }
    bool placed = dup2(input, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2;
    for (int i = 0; i < count; ++i) {
        placed = placed && dup2(prepared.high[static_cast<std::size_t>(i)], inherited_base + i) >= 0;
    }
    // What whoever started us left open without close-on-exec ends here.
    return placed && close_range(3, static_cast<unsigned>(inherited_base) - 1, CLOSE_RANGE_CLOEXEC) == 0 &&
           close_range(static_cast<unsigned>(above), ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

[[noreturn]] void become(Prepared& prepared) noexcept {
    const SpawnRequest& request = prepared.request;
    setsid();
    reset_signals();
    if (!place_descriptors(prepared)) {
        fail(prepared, Step::descriptors);
    }
    if (request.open_files.rlim_cur != RLIM_INFINITY && setrlimit(RLIMIT_NOFILE, &request.open_files) != 0) {
        fail(prepared, Step::limits);
    }
    if (request.change_identity) {
        if (setgroups(request.supplementary.size(), request.supplementary.data()) != 0) {
            fail(prepared, Step::groups);
        }
        if (setresgid(request.gid, request.gid, request.gid) != 0) {
            fail(prepared, Step::group);
        }
        if (setresuid(request.uid, request.uid, request.uid) != 0) {
            fail(prepared, Step::user);
        }
    }
    execve(prepared.argv[0], prepared.argv.data(), prepared.environment.data());
    fail(prepared, Step::execute);
}

}  // namespace

const char* describe(Step step) noexcept {
    switch (step) {
        case Step::fork:
            return "fork a process";
        case Step::descriptors:
            return "pass descriptors on";
        case Step::limits:
            return "set the limit of open files";
        case Step::groups:
            return "set supplementary groups";
        case Step::group:
            return "change the group";
        case Step::user:
            return "change the user";
        case Step::execute:
            return "execute the program";
    }
    return "start";
}

std::expected<pid_t, SpawnError> spawn(const SpawnRequest& request) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return std::unexpected{SpawnError{Step::descriptors, errno}};
    }
    UniqueFd read_end{ends[0]};
    UniqueFd write_end{ends[1]};
    Prepared prepared{request, pointers(request.command), pointers(request.environment),
                      std::vector<int>(request.inherited_fds.size()), write_end.get()};
    const pid_t pid = fork();
    if (pid < 0) {
        return std::unexpected{SpawnError{Step::fork, errno}};
    }
    if (pid == 0) {
        become(prepared);
    }
    write_end.reset();
    SpawnError error;
    ssize_t size = 0;
    do {
        size = ::read(read_end.get(), &error, sizeof error);
    } while (size < 0 && errno == EINTR);
    if (size == static_cast<ssize_t>(sizeof error)) {
        while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
        return std::unexpected{error};
    }
    return pid;
}

}  // namespace cede::children
