// SPDX-License-Identifier: Apache-2.0
#include "children/scoreboard_map.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utility>

#include <doctest/doctest.h>

#include "tests/support/descriptors.h"

using namespace cede::children;
using cede::tests::closes_on_exec;
using cede::tests::descriptors_of;

TEST_CASE("a new scoreboard has empty slots and a control page that says what it is") {
    auto map = ScoreboardMap::create(3);
    REQUIRE(map.has_value());
    CHECK(map->slots() == 3);
    const Control& control = map->control();
    CHECK(control.magic == scoreboard_magic);
    CHECK(control.version == scoreboard_version);
    CHECK(control.slot_count == 3);
    CHECK(control.waiting == Waiting::nobody);
    CHECK(control.mode == RunMode::serve);
    CHECK(control.give_up_by == GiveUpBy::parking);
    CHECK(control.keepalive_limit == no_keepalive_limit);
    for (std::uint32_t i = 0; i < 3; ++i) {
        CHECK(map->slot(i).state == ChildState::empty);
        CHECK(map->slot(i).pid == 0);
        CHECK(map->slot(i).requests == 0);
    }
}

TEST_CASE("each slot has a page of its own in the file") {
    auto map = ScoreboardMap::create(4);
    REQUIRE(map.has_value());
    struct stat file {};
    REQUIRE(fstat(map->fd(), &file) == 0);
    CHECK(file.st_size == static_cast<off_t>(scoreboard_size(4)));
    CHECK(closes_on_exec(map->fd()));
    for (std::uint32_t i = 0; i < 4; ++i) {
        // As the agent maps it: this page only.
        void* const page = mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd(),
                                static_cast<off_t>(page_size * (1 + i)));
        REQUIRE(page != MAP_FAILED);
        static_cast<Slot*>(page)->pid = 100 + i;
        munmap(page, page_size);
        for (std::uint32_t other = 0; other < 4; ++other) {
            CHECK(map->slot(other).pid == (other <= i ? 100 + other : 0));
        }
    }
}

TEST_CASE("another process sees what is written, at once") {
    auto map = ScoreboardMap::create(1);
    REQUIRE(map.has_value());
    const pid_t pid = fork();
    if (pid == 0) {
        map->slot(0).state = ChildState::free;
        _exit(map->control().slot_count == 1 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    CHECK(map->slot(0).state == ChildState::free);
}

TEST_CASE("resetting a slot clears all of it and nothing else") {
    auto map = ScoreboardMap::create(3);
    REQUIRE(map.has_value());
    for (std::uint32_t i = 0; i < 3; ++i) {
        Slot& slot = map->slot(i);
        slot.state = ChildState::busy;
        slot.pid = 7;
        slot.since_ns = slot.requests = slot.accepted = slot.taken = slot.parked = slot.closed = 9;
    }
    map->reset(1, ChildState::starting);
    const Slot& cleared = map->slot(1);
    CHECK(cleared.state == ChildState::starting);
    CHECK(cleared.pid == 0);
    for (const auto* counter : {&cleared.since_ns, &cleared.requests, &cleared.accepted, &cleared.taken,
                                &cleared.parked, &cleared.closed}) {
        CHECK(*counter == 0);
    }
    for (const std::uint32_t other : {0U, 2U}) {
        CHECK(map->slot(other).state == ChildState::busy);
        CHECK(map->slot(other).requests == 9);
    }
    CHECK(map->control().slot_count == 3);
}

TEST_CASE("moving a scoreboard keeps its memory, and the last owner lets go of all") {
    const auto before = descriptors_of().size();
    {
        auto map = ScoreboardMap::create(2);
        REQUIRE(map.has_value());
        map->slot(1).pid = 5;
        ScoreboardMap moved{std::move(*map)};
        CHECK(moved.slot(1).pid == 5);
        CHECK(moved.slots() == 2);
    }
    CHECK(descriptors_of().size() == before);
}

TEST_CASE("every state has a name of its own, and no other number has one") {
    for (std::uint32_t state = 0; state <= last_child_state; ++state) {
        CHECK(std::string{name_of(ChildState{state})} != "unknown");
    }
    CHECK(std::string{name_of(ChildState::giving_up)} == "giving-up");
    CHECK(std::string{name_of(ChildState{last_child_state + 1})} == "unknown");
}
