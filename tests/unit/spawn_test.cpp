// SPDX-License-Identifier: Apache-2.0
#include "children/spawn.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::children;
using cede::tests::descriptors_of;
using cede::tests::Ends;
using cede::tests::pipe_pair;
using cede::tests::TempDirectory;

namespace {

using Step = SpawnError::Step;

struct Outcome {
    pid_t pid = 0;
    int status = -1;
    std::string output;
};

UniqueFd null_device() {
    return UniqueFd{::open("/dev/null", O_RDWR | O_CLOEXEC)};
}

// Runs a program to its end.
Outcome run(SpawnRequest request) {
    Ends output = pipe_pair();
    const UniqueFd null = null_device();
    if (request.stdin_fd < 0) {
        request.stdin_fd = null.get();
    }
    request.output_fd = output.theirs.get();
    const auto pid = spawn(request);
    REQUIRE(pid.has_value());
    output.theirs.reset();
    Outcome outcome{*pid, -1, {}};
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(output.ours.get(), buffer, sizeof buffer)) > 0;) {
        outcome.output.append(buffer, static_cast<std::size_t>(size));
    }
    REQUIRE(::waitpid(*pid, &outcome.status, 0) == *pid);
    return outcome;
}

Outcome run(std::vector<std::string> command) {
    SpawnRequest request;
    request.command = std::move(command);
    return run(std::move(request));
}

SpawnError refused(SpawnRequest request) {
    const UniqueFd null = null_device();
    if (request.stdin_fd == -1) {
        request.stdin_fd = null.get();
    }
    request.output_fd = null.get();
    const auto pid = spawn(request);
    REQUIRE_FALSE(pid.has_value());
    // The new process has been reaped.
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
    CHECK(errno == ECHILD);
    return pid.error();
}

SpawnError refused(std::vector<std::string> command) {
    SpawnRequest request;
    request.command = std::move(command);
    return refused(std::move(request));
}

// A field of /proc/self/status as the program itself sees it.
std::string status_field(const std::string& text, const std::string& name) {
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + ":")) {
            const auto from = line.find_first_not_of(" \t", name.size() + 1);
            return from == std::string::npos ? "" : line.substr(from);
        }
    }
    return "(no " + name + ")";
}

std::map<int, std::string> parse_listing(const std::string& output) {
    std::map<int, std::string> result;
    std::istringstream lines{output};
    for (std::string line; std::getline(lines, line);) {
        if (const auto arrow = line.find(" -> "); arrow != std::string::npos) {
            const auto name = line.rfind(' ', arrow - 1) + 1;
            result[std::stoi(line.substr(name, arrow - name))] = line.substr(arrow + 4);
        }
    }
    return result;
}

// A file that can be recognised in a listing of descriptors.
UniqueFd named_file(const char* name) {
    UniqueFd fd{::memfd_create(name, MFD_CLOEXEC)};
    REQUIRE(fd);
    return fd;
}

UniqueFd placed_at(int number, const char* name, int flags) {
    REQUIRE(::fcntl(number, F_GETFD) == -1);
    UniqueFd placed{::dup3(named_file(name).get(), number, flags)};
    REQUIRE(placed.get() == number);
    return placed;
}

}  // namespace

TEST_CASE("a program gets the listed descriptors and no other") {
    // Numbers that collide with those that the new program is to see, in the worst order, and descriptors
    // that somebody left open without close-on-exec, below, among and above.
    const UniqueFd first = placed_at(inherited_base + 1, "first", O_CLOEXEC);
    const UniqueFd second = placed_at(inherited_base, "second", O_CLOEXEC);
    const UniqueFd third = placed_at(inherited_base + 4, "third", 0);
    const UniqueFd leaks[] = {placed_at(50, "leak", 0),
                              placed_at(inherited_base - 1, "leak", 0),
                              placed_at(inherited_base + 2, "leak", 0),
                              placed_at(inherited_base + 3, "leak", 0),
                              placed_at(inherited_base + 5, "leak", 0),
                              placed_at(400, "leak", 0)};
    const UniqueFd input = named_file("input");
    SpawnRequest request;
    request.command = {"/bin/sh", "-c", "ls -l /proc/$$/fd; exit 0"};
    request.stdin_fd = input.get();
    request.inherited_fds = {first.get(), second.get(), third.get()};
    const auto seen = parse_listing(run(request).output);
    REQUIRE(seen.size() == 6);
    CHECK(seen.at(0).find("input") != std::string::npos);
    CHECK(seen.at(1).starts_with("pipe:"));
    CHECK(seen.at(1) == seen.at(2));
    CHECK(seen.at(inherited_base).find("first") != std::string::npos);
    CHECK(seen.at(inherited_base + 1).find("second") != std::string::npos);
    CHECK(seen.at(inherited_base + 2).find("third") != std::string::npos);
    // Ours are as they were.
    CHECK(::fcntl(inherited_base + 2, F_GETFD) == 0);
    CHECK(descriptors_of().at(inherited_base).find("second") != std::string::npos);
}

TEST_CASE("one descriptor may be passed on several times") {
    const UniqueFd file = named_file("shared");
    SpawnRequest request;
    request.command = {"/bin/sh", "-c", "ls -l /proc/$$/fd; exit 0"};
    request.stdin_fd = file.get();
    request.inherited_fds = {file.get(), file.get()};
    const auto seen = parse_listing(run(request).output);
    CHECK(seen.size() == 5);
    for (const int fd : {0, inherited_base, inherited_base + 1}) {
        CHECK(seen.at(fd).find("shared") != std::string::npos);
    }
}

TEST_CASE("a start leaves nothing open behind, whether it works or not") {
    const auto before = descriptors_of();
    run({"/bin/true"});
    refused({"/nowhere/program"});
    CHECK(descriptors_of() == before);
}

TEST_CASE("signals are at their defaults and unblocked, whatever they were before") {
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    for (const int number : {SIGUSR1, SIGTERM, SIGCHLD, SIGRTMIN}) {
        sigaddset(&blocked, number);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const auto hup = std::signal(SIGHUP, SIG_IGN);
    const auto pipe = std::signal(SIGPIPE, SIG_IGN);
    const auto last = std::signal(SIGRTMAX, SIG_IGN);
    const auto usr2 = std::signal(SIGUSR2, [](int) {});
    const std::string status = run({"/bin/cat", "/proc/self/status"}).output;
    std::signal(SIGHUP, hup);
    std::signal(SIGPIPE, pipe);
    std::signal(SIGRTMAX, last);
    std::signal(SIGUSR2, usr2);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    for (const char* field : {"SigBlk", "SigIgn", "SigCgt", "SigPnd"}) {
        CAPTURE(field);
        CHECK(status_field(status, field) == "0000000000000000");
    }
}

TEST_CASE("a program leads a session of its own") {
    const Outcome outcome = run({"/bin/cat", "/proc/self/stat"});
    std::istringstream fields{outcome.output.substr(outcome.output.rfind(')') + 1)};
    std::string state;
    pid_t parent = 0;
    pid_t group = 0;
    pid_t session = 0;
    fields >> state >> parent >> group >> session;
    CHECK(parent == ::getpid());
    CHECK(group == outcome.pid);
    CHECK(session == outcome.pid);
}

TEST_CASE("command and environment arrive as they are, and nothing of ours with them") {
    SpawnRequest request;
    request.command = {"/bin/sh", "-c", "printf '%s|' \"$@\"; exec /usr/bin/env", "sh", "a b", "", "c\nd"};
    request.environment = {"ONE=1", "EMPTY=", "EQUALS=a=b"};
    const Outcome outcome = run(request);
    CHECK(outcome.output.starts_with("a b||c\nd|"));
    CHECK(outcome.output.find("ONE=1\n") != std::string::npos);
    CHECK(outcome.output.find("EMPTY=\n") != std::string::npos);
    CHECK(outcome.output.find("EQUALS=a=b\n") != std::string::npos);
    CHECK(outcome.output.find("HOME=") == std::string::npos);
    CHECK(outcome.status == 0);
}

TEST_CASE("what execve says comes back with its step") {
    const TempDirectory directory;
    const auto check = [](std::vector<std::string> command, int error) {
        CAPTURE(command.front());
        const SpawnError refusal = refused(std::move(command));
        CHECK(refusal.step == Step::execute);
        CHECK(refusal.error == error);
    };
    check({directory.path("missing")}, ENOENT);
    check({directory.write("plain", "#!/bin/sh\n", 0644)}, EACCES);
    check({directory.path()}, EACCES);
    check({directory.write("nonsense", "neither ELF nor script", 0755)}, ENOEXEC);
    check({directory.write("lost", "#!/nowhere/interpreter\n", 0755)}, ENOENT);
    check({directory.path("plain") + "/below"}, ENOTDIR);
    check({""}, ENOENT);
}

TEST_CASE("a descriptor that is not open is an error of the step that passes it on") {
    SpawnRequest request;
    request.command = {"/bin/true"};
    request.inherited_fds = {999999};
    CHECK(refused(request).step == Step::descriptors);
    request.inherited_fds = {-1};
    CHECK(refused(request).error == EBADF);
    request.inherited_fds = {};
    request.stdin_fd = 999999;
    CHECK(refused(request).step == Step::descriptors);
}

TEST_CASE("the limit of open files is set, or left alone") {
    rlimit ours{};
    getrlimit(RLIMIT_NOFILE, &ours);
    const std::vector<std::string> show{"/bin/sh", "-c", "ulimit -n"};
    CHECK(run(show).output == std::to_string(ours.rlim_cur) + "\n");
    SpawnRequest request;
    request.command = show;
    request.surroundings.open_files = {321, ours.rlim_max};
    CHECK(run(request).output == "321\n");
}

TEST_CASE("the identity is changed completely, or the start fails") {
    if (::geteuid() != 0) {
        MESSAGE("only root can change its identity");
        return;
    }
    SpawnRequest request;
    request.command = {"/bin/cat", "/proc/self/status"};
    request.change_identity = true;
    request.uid = 65534;
    request.gid = 65533;
    request.supplementary = {65533, 65532};
    const std::string status = run(request).output;
    CHECK(status_field(status, "Uid") == "65534\t65534\t65534\t65534");
    CHECK(status_field(status, "Gid") == "65533\t65533\t65533\t65533");
    CHECK(status_field(status, "Groups").starts_with("65532 65533"));
    CHECK(status_field(status, "CapEff") == "0000000000000000");

    // Whoever may not change it hears which step was refused.
    const UniqueFd null = null_device();
    request.stdin_fd = request.output_fd = null.get();
    const pid_t pid = ::fork();
    if (pid == 0) {
        if (::setresuid(65534, 65534, 65534) != 0) {
            ::_exit(9);
        }
        const auto result = spawn(request);
        const bool right =
            !result && result.error().step == SpawnError::Step::groups && result.error().error == EPERM;
        ::_exit(right ? 0 : 1);
    }
    int result = -1;
    REQUIRE(::waitpid(pid, &result, 0) == pid);
    CHECK(result == 0);
}

TEST_CASE("surroundings are what the program finds, and ours stay as they are") {
    const TempDirectory directory;
    SpawnRequest request;
    request.command = {"/bin/sh", "-c", "pwd; umask; nice; ulimit -Sc; ulimit -Hc; ulimit -Sn; ulimit -Hn"};
    request.surroundings.directory = directory.path();
    request.surroundings.umask = 027;
    request.surroundings.nice = 7;
    request.surroundings.core = rlimit{0, 0};
    request.surroundings.open_files = rlimit{300, 300};
    const mode_t before = ::umask(022);
    CHECK(run(request).output == directory.path() + "\n0027\n7\n0\n0\n300\n300\n");
    CHECK(::umask(before) == 022);
    CHECK(::getpriority(PRIO_PROCESS, 0) == 0);
}

TEST_CASE("another root directory is entered before the directory, and what is outside is not found") {
    if (::geteuid() != 0) {
        MESSAGE("only root can change the root directory");
        return;
    }
    const TempDirectory directory;
    ::mkdir(directory.path("inner").c_str(), 0755);
    SpawnRequest request;
    request.surroundings.root = directory.path();
    request.surroundings.directory = "/inner";
    // There is no program in it, so what it finds is looked at in a rehearsal.
    const auto seen = rehearse(request, [] {
        char name[4096];
        return std::string{::getcwd(name, sizeof name)} + (::access("/bin/sh", F_OK) == 0 ? " sh" : " none");
    });
    CHECK(seen.value_or("refused") == "/inner none");
    request.surroundings.directory.clear();
    request.command = {"/bin/true"};
    CHECK(refused(request).step == Step::execute);
    CHECK(rehearse(request, [] {
              char name[4096];
              return std::string{::getcwd(name, sizeof name)};
          }).value_or("refused") == "/");
}

TEST_CASE("surroundings that can not be entered are an error of their step, at a start and in a rehearsal") {
    const TempDirectory directory;
    const auto check = [](const Surroundings& surroundings, Step step, int error) {
        CAPTURE(describe(step));
        SpawnRequest request;
        request.command = {"/bin/true"};
        request.surroundings = surroundings;
        const SpawnError refusal = refused(request);
        CHECK(refusal.step == step);
        CHECK(refusal.error == error);
        const auto seen = rehearse(request, [] { return std::string{}; });
        REQUIRE_FALSE(seen.has_value());
        CHECK(seen.error().step == step);
        CHECK(seen.error().error == error);
    };
    Surroundings surroundings;
    surroundings.directory = directory.path("missing");
    check(surroundings, Step::directory, ENOENT);
    surroundings.root = directory.path("missing");
    check(surroundings, Step::root, ::geteuid() == 0 ? ENOENT : EPERM);
    // Above what the kernel grants anybody.
    surroundings.open_files = rlimit{RLIM_INFINITY - 1, RLIM_INFINITY - 1};
    check(surroundings, Step::open_files, EPERM);
}

TEST_CASE("a rehearsal brings back what was seen, of any length, before the identity changed") {
    SpawnRequest request;
    request.change_identity = ::geteuid() == 0;
    request.uid = 65534;
    request.gid = 65533;
    request.surroundings.umask = 077;
    const std::string expected = std::to_string(::geteuid()) + std::string(300'000, 'x');
    const auto before = descriptors_of();
    const auto seen =
        rehearse(request, [] { return std::to_string(::geteuid()) + std::string(300'000, 'x'); });
    CHECK(seen.value_or("refused") == expected);
    CHECK(descriptors_of() == before);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
    // One that dies is no success.
    CHECK_FALSE(rehearse(request, []() -> std::string { ::_exit(0); }).has_value());
}

TEST_CASE("every step has words for a message") {
    for (const Step step :
         {Step::fork, Step::descriptors, Step::open_files, Step::core, Step::nice, Step::root,
          Step::directory, Step::groups, Step::group, Step::user, Step::execute}) {
        CHECK(std::string{describe(step)} != "start");
    }
}
