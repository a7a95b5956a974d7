// SPDX-License-Identifier: Apache-2.0
#include "pm/child_exec.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "pm/config.h"
#include "tests/support/descriptors.h"

using namespace cede;

TEST_CASE("a child is executed with its slot in the agent's variable, and its own channel") {
    tests::Ends channel = tests::pipe_pair();
    tests::Ends output = tests::pipe_pair();
    const children::UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    children::SpawnRequest request;
    request.command = {"/bin/sh", "-c", "echo \"$CEDE_AGENT;$OTHER\"; readlink /proc/self/fd/100"};
    request.environment = {"PATH=/usr/bin:/bin", "CEDE_AGENT=2 100", "OTHER=CEDE_AGENT=2"};
    request.stdin_fd = null.get();
    request.output_fd = output.theirs.get();
    request.inherited_fds = {-1, null.get()};
    const auto pid = pm::execute_child(request, 17, channel.theirs.get(), -1);
    REQUIRE(pid.has_value());
    output.theirs.reset();
    std::string said;
    char buffer[256];
    for (ssize_t size = 0; (size = ::read(output.ours.get(), buffer, sizeof buffer)) > 0;) {
        said.append(buffer, static_cast<std::size_t>(size));
    }
    ::waitpid(*pid, nullptr, 0);
    CHECK(said.starts_with("2 100 17;CEDE_AGENT=2\npipe:"));
}

TEST_CASE("a program that can not be executed is an error") {
    const children::UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    children::SpawnRequest request;
    request.command = {"/nonexistent"};
    request.stdin_fd = null.get();
    request.inherited_fds = {-1};
    const auto pid = pm::execute_child(request, 0, null.get(), -1);
    REQUIRE_FALSE(pid.has_value());
    CHECK(pid.error().error == ENOENT);
}

TEST_CASE("children that are executed do not all start at once") {
    pm::Config config;
    config.children = 100;
    CHECK(pm::sizes_of(config)->most_starting == 32);
    config.spawn = pm::SpawnMode::exec;
    CHECK(pm::sizes_of(config)->most_starting == pm::most_executed_at_once());
    CHECK(pm::most_executed_at_once() >= 2);
}
