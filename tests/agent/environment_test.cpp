// SPDX-License-Identifier: Apache-2.0
// A script sees the environment that it would have without the agent.
#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/stand_in.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;

namespace {

using Strings = std::vector<std::string>;

Strings lines(const std::string& text) {
    Strings result;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);) {
        result.push_back(line);
    }
    return result;
}

struct Seen {
    Strings at_start;
    Strings in_child;
    Strings in_program;
};

Seen seen_by(Strings command_line, Strings environment) {
    StandIn::Options options;
    options.command = std::move(command_line);
    options.environment = std::move(environment);
    StandIn stand_in{options};
    stand_in.wait_until_ready();
    stand_in.start_child();
    const UniqueFd client = stand_in.connect();
    Seen seen{lines(ask(client.get(), command("environment-at-start"))),
              lines(ask(client.get(), command("environment"))),
              lines(ask(client.get(), command("popen", "/usr/bin/env")))};
    REQUIRE_FALSE(seen.in_program.empty());
    CHECK(seen.in_program.back() == "status 0");
    seen.in_program.pop_back();
    return seen;
}

// What shells add by themselves.
Strings sorted_without_shell(Strings strings) {
    std::erase_if(strings, [](const std::string& entry) {
        return entry.starts_with("_=") || entry.starts_with("PWD=") || entry.starts_with("SHLVL=") ||
               entry.starts_with("OLDPWD=");
    });
    std::ranges::sort(strings);
    return strings;
}

const Strings plain{"PATH=/usr/bin:/bin", "LANG=C", "EMPTY=", "A=b=c", "CEDE_OF_MINE=1", "LD_PRELOAD_NOT=1"};

}  // namespace

TEST_CASE("a script sees exactly the supervisor's environment, in its order") {
    const Seen seen = seen_by({host_path()}, plain);
    CHECK(seen.in_child == plain);
    CHECK(sorted_without_shell(seen.in_program) == sorted_without_shell(plain));
}

TEST_CASE("an empty environment stays empty") {
    CHECK(seen_by({host_path()}, {}).in_child.empty());
}

TEST_CASE("while the program starts it sees what its start needs, and nothing of the agent") {
    const Seen seen = seen_by({host_path()}, plain);
    Strings expected = plain;
    expected.insert(expected.begin(), "LSAPI_PADDING=" + std::string(64, 'x'));
    expected.emplace_back("PHP_FCGI_MAX_REQUESTS=0");
    expected.emplace_back("LSAPI_MAX_IDLE=0");
    CHECK(seen.at_start == expected);
}

TEST_CASE("a limit of requests is the supervisor's to keep, and no script sees it") {
    Strings own = plain;
    own.insert(own.begin() + 1, "PHP_FCGI_MAX_REQUESTS=500");
    const Seen seen = seen_by({host_path()}, own);
    CHECK(std::ranges::count(seen.at_start, "PHP_FCGI_MAX_REQUESTS=500") == 0);
    CHECK(seen.in_child == plain);
}

TEST_CASE("libraries that the user preloads are loaded, and LD_PRELOAD reads as the user wrote it") {
    for (const std::string value : {"libm.so.6", "", "libm.so.6:libdl.so.2"}) {
        CAPTURE(value);
        const Strings own{"PATH=/usr/bin:/bin", "LD_PRELOAD=" + value, "LAST=1"};
        Strings sorted = own;
        std::ranges::sort(sorted);
        const Seen seen = seen_by({host_path()}, own);
        Strings in_child = seen.in_child;
        std::ranges::sort(in_child);
        CHECK(in_child == sorted);
        CHECK(sorted_without_shell(seen.in_program) == sorted);
    }
}

TEST_CASE(
    "the user's preloaded libraries are in the child and in its programs, the agent in the child only") {
    StandIn::Options options;
    options.environment = {"PATH=/usr/bin:/bin", "LD_PRELOAD=libm.so.6"};
    StandIn stand_in{options};
    stand_in.wait_until_ready();
    const pid_t child = stand_in.start_child();
    const UniqueFd client = stand_in.connect();
    const std::string own =
        ask(client.get(), command("popen", "cat /proc/" + std::to_string(child) + "/maps"));
    CHECK(own.find("libm.so") != std::string::npos);
    CHECK(own.find("libcede-agent") != std::string::npos);
    const std::string program = ask(client.get(), command("popen", "cat /proc/self/maps"));
    CHECK(program.find("libm.so") != std::string::npos);
    CHECK(program.find("libcede-agent") == std::string::npos);
}

TEST_CASE("a wrapper script that executes the program works, and may run others before") {
    const TempDirectory directory;
    for (const std::string& body :
         {"exec " + host_path() + " \"$@\"\n",
          "before=$(/bin/date)\n/bin/ls / > /dev/null\nMINE=1; export MINE\nexec " + host_path() + "\n",
          "/usr/bin/env true\n(exit 0)\nunset MISSING\nexec /usr/bin/env MINE=1 " + host_path() + "\n"}) {
        CAPTURE(body);
        const std::string script = directory.write("wrapper", "#!/bin/sh\n" + body, 0755);
        const Seen seen = seen_by({script}, plain);
        Strings expected = plain;
        if (body.find("MINE=1") != std::string::npos) {
            expected.push_back("MINE=1");
        }
        CHECK(sorted_without_shell(seen.in_child) == sorted_without_shell(expected));
    }
}

TEST_CASE("a wrapper script that starts the program as its own child works, too") {
    const TempDirectory directory;
    const std::string script = directory.write("wrapper", "#!/bin/sh\n" + host_path() + "\nexit 4\n", 0755);
    StandIn::Options options;
    options.command = {script};
    StandIn stand_in{options};
    const auto ready = stand_in.wait_until_ready();
    CHECK(ready.pid != stand_in.pid());
    const pid_t child = stand_in.start_child();
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("pid")).starts_with(std::to_string(child)));
    stand_in.close_zygote_channel();
    CHECK(stand_in.exit_of(stand_in.pid()) == 4 << 8);
}
