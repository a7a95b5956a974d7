// SPDX-License-Identifier: Apache-2.0
#include "pm/memory_events.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/temp_directory.h"

using cede::pm::MemoryEvents;
using cede::pm::oom_kills_in;
using cede::pm::own_cgroup;

TEST_CASE("the number of kills stands in its own line") {
    CHECK(oom_kills_in("low 0\nhigh 3\nmax 9\noom 2\noom_kill 17\noom_group_kill 1\n") == 17U);
    CHECK(oom_kills_in("oom_kill 0") == 0U);
    for (const char* const text : {"", "oom 2\n", "oom_kill\n", "oom_kill x\n", "an oom_kill 3\n"}) {
        CHECK(!oom_kills_in(text));
    }
}

TEST_CASE("our cgroup is that of the unified hierarchy") {
    CHECK(own_cgroup("12:cpu:/a\n0::/system.slice/cede@www.service\n") == "/system.slice/cede@www.service");
    CHECK(own_cgroup("0::/") == "/");
    CHECK(own_cgroup("1:name=systemd:/x\n").empty());
    CHECK(own_cgroup("").empty());
}

TEST_CASE("a kill is known for two ticks") {
    const cede::tests::TempDirectory root;
    std::filesystem::create_directory(root.path("pool"));
    const std::string cgroups = root.write("cgroups", "0::/pool\n");
    (void)root.write("pool/memory.events", "oom_kill 5\n");
    MemoryEvents events{cgroups, root.path()};
    CHECK(!events.killed_lately());
    (void)root.write("pool/memory.events", "oom_kill 6\n");
    CHECK(events.killed_lately());
    events.tick();
    CHECK(events.killed_lately());
    events.tick();
    CHECK(!events.killed_lately());
    std::filesystem::remove(root.path("pool/memory.events"));
    events.tick();
    CHECK(!events.killed_lately());
}

TEST_CASE("without cgroups nothing is known") {
    MemoryEvents events{"/no/such/file", "/no/such/folder"};
    events.tick();
    CHECK(!events.killed_lately());
}
