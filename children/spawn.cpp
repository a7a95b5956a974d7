// SPDX-License-Identifier: Apache-2.0
#include "children/spawn.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

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

using Done = std::expected<void, SpawnError>;

std::unexpected<SpawnError> refused(Step step) noexcept {
    return std::unexpected{SpawnError{step, errno}};
}

[[noreturn]] void fail(int report, const SpawnError& error) noexcept {
    (void)!::write(report, &error, sizeof error);
    _exit(127);
}

Done change_identity(const SpawnRequest& request) noexcept {
    if (!request.change_identity) {
        return {};
    }
    if (setgroups(request.supplementary.size(), request.supplementary.data()) != 0) {
        return refused(Step::groups);
    }
    if (setresgid(request.gid, request.gid, request.gid) != 0) {
        return refused(Step::group);
    }
    if (setresuid(request.uid, request.uid, request.uid) != 0) {
        return refused(Step::user);
    }
    return {};
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
        fail(prepared.report, {Step::descriptors, errno});
    }
    if (const Done entered = enter(request.surroundings); !entered) {
        fail(prepared.report, entered.error());
    }
    if (const Done changed = change_identity(request); !changed) {
        fail(prepared.report, changed.error());
    }
    execve(prepared.argv[0], prepared.argv.data(), prepared.environment.data());
    fail(prepared.report, {Step::execute, errno});
}

bool write_all(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

// What it says is an error, or one without a number, and the text behind it.
[[noreturn]] void act(const SpawnRequest& request, const std::function<std::string()>& look,
                      int report) noexcept {
    if (const Done entered = enter(request.surroundings); !entered) {
        fail(report, entered.error());
    }
    const std::string seen = look();
    if (const Done changed = change_identity(request); !changed) {
        fail(report, changed.error());
    }
    const SpawnError none;
    const bool said =
        ::write(report, &none, sizeof none) == static_cast<ssize_t>(sizeof none) && write_all(report, seen);
    _exit(said ? 0 : 127);
}

std::string read_all(int fd) {
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t got = ::read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return text;
        }
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

void reap(pid_t pid) noexcept {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace

const char* describe(Step step) noexcept {
    switch (step) {
        case Step::fork:
            return "fork a process";
        case Step::descriptors:
            return "pass descriptors on";
        case Step::open_files:
            return "set the limit of open files";
        case Step::core:
            return "set the limit of core files";
        case Step::nice:
            return "set the priority";
        case Step::root:
            return "change the root directory";
        case Step::directory:
            return "change the directory";
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

std::expected<void, SpawnError> enter(const Surroundings& surroundings) noexcept {
    if (surroundings.open_files && setrlimit(RLIMIT_NOFILE, &*surroundings.open_files) != 0) {
        return refused(Step::open_files);
    }
    if (surroundings.core && setrlimit(RLIMIT_CORE, &*surroundings.core) != 0) {
        return refused(Step::core);
    }
    if (surroundings.nice && setpriority(PRIO_PROCESS, 0, *surroundings.nice) != 0) {
        return refused(Step::nice);
    }
    if (surroundings.umask) {
        ::umask(*surroundings.umask);
    }
    const std::string& root = surroundings.root;
    // What is open or current outside would still be reached from within (chroot(2)).
    if (!root.empty() && (chroot(root.c_str()) != 0 || chdir("/") != 0)) {
        return refused(Step::root);
    }
    const std::string& directory = surroundings.directory;
    if (!directory.empty() && chdir(directory.c_str()) != 0) {
        return refused(Step::directory);
    }
    return {};
}

std::expected<std::string, SpawnError> rehearse(const SpawnRequest& request,
                                                const std::function<std::string()>& look) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return refused(Step::descriptors);
    }
    const UniqueFd read_end{ends[0]};
    UniqueFd write_end{ends[1]};
    // Whoever is ended meanwhile must not leave the other process behind: signals wait for so long.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        act(request, look, write_end.get());
    }
    write_end.reset();
    std::string said = pid > 0 ? read_all(read_end.get()) : std::string{};
    if (pid > 0) {
        reap(pid);
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (pid < 0) {
        return refused(Step::fork);
    }
    SpawnError error{Step::fork, ECHILD};  // unless it lived to say something
    if (said.size() >= sizeof error) {
        std::memcpy(&error, said.data(), sizeof error);
        said.erase(0, sizeof error);
    }
    if (error.error != 0) {
        return std::unexpected{error};
    }
    return said;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const std::string& string : strings) {
        result.push_back(const_cast<char*>(string.c_str()));
    }
    result.push_back(nullptr);
    return result;
}

std::expected<pid_t, SpawnError> spawn(const SpawnRequest& request) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return refused(Step::descriptors);
    }
    UniqueFd read_end{ends[0]};
    UniqueFd write_end{ends[1]};
    Prepared prepared{request, pointers(request.command), pointers(request.environment),
                      std::vector<int>(request.inherited_fds.size()), write_end.get()};
    const pid_t pid = fork();
    if (pid < 0) {
        return refused(Step::fork);
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
        reap(pid);
        return std::unexpected{error};
    }
    return pid;
}

}  // namespace cede::children
