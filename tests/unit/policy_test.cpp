// SPDX-License-Identifier: Apache-2.0
#include "pm/policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using cede::children::ChildState;
using cede::children::Waiting;

namespace {

using Slots = std::vector<std::uint32_t>;

struct Row {
    const char* name;
    std::vector<ChildView> children;
    std::uint64_t listen_queue;
    std::uint64_t handoff_queue;
    Slots give_up;
    Waiting mark;
};

const std::vector<Row> table{
    {"nobody waits, nobody is there", {}, 0, 0, {}, Waiting::nobody},
    {"nobody waits: idle children keep their connections",
     {{ChildState::idle, 5}, {ChildState::idle, 3}},
     0,
     0,
     {},
     Waiting::nobody},
    {"somebody waits and nobody is there", {}, 1, 0, {}, Waiting::pressure},
    {"a free child takes the waiter",
     {{ChildState::free, 0}, {ChildState::idle, 1}},
     1,
     0,
     {},
     Waiting::attention},
    {"a child that gives up already takes the waiter",
     {{ChildState::giving_up, 9}, {ChildState::idle, 1}},
     0,
     1,
     {},
     Waiting::attention},
    {"one waiter, the longest idle of three goes",
     {{ChildState::idle, 30}, {ChildState::idle, 10}, {ChildState::idle, 20}},
     1,
     0,
     {1},
     Waiting::attention},
    {"two waiters in two queues, the two longest idle go, in order",
     {{ChildState::idle, 30}, {ChildState::idle, 10}, {ChildState::idle, 20}},
     1,
     1,
     {1, 2},
     Waiting::attention},
    {"equally long idle: the lower slot first",
     {{ChildState::busy, 0}, {ChildState::idle, 7}, {ChildState::idle, 7}},
     1,
     0,
     {1},
     Waiting::attention},
    {"as many waiters as idle children: enough",
     {{ChildState::idle, 2}, {ChildState::idle, 1}},
     2,
     0,
     {1, 0},
     Waiting::attention},
    {"more waiters than idle children: pressure, and all idle ones go",
     {{ChildState::idle, 2}, {ChildState::busy, 1}},
     2,
     0,
     {0},
     Waiting::pressure},
    {"free and idle together suffice",
     {{ChildState::free, 2}, {ChildState::idle, 1}, {ChildState::idle, 3}},
     2,
     0,
     {1},
     Waiting::attention},
    {"children that start, read, run or leave take nobody",
     {{ChildState::starting, 0},
      {ChildState::reading, 0},
      {ChildState::busy, 0},
      {ChildState::exiting, 0},
      {ChildState::empty, 0}},
     1,
     0,
     {},
     Waiting::pressure},
    {"a reserved child takes whoever stands in a listen queue",
     {{ChildState::free, 0, true}, {ChildState::idle, 1}},
     1,
     0,
     {},
     Waiting::attention},
    {"and nobody from the handoff queue",
     {{ChildState::free, 0, true}, {ChildState::idle, 1}},
     0,
     1,
     {1},
     Waiting::attention},
    {"with nobody else for it, that is pressure",
     {{ChildState::free, 0, true}, {ChildState::busy, 1}},
     0,
     1,
     {},
     Waiting::pressure},
    {"one in each queue: the reserved child has its own",
     {{ChildState::free, 0, true}, {ChildState::free, 1}},
     1,
     1,
     {},
     Waiting::attention},
    {"an idle reserved child gives up for the listen queue, if it has been idle for longest",
     {{ChildState::idle, 1, true}, {ChildState::idle, 2}},
     1,
     0,
     {0},
     Waiting::attention},
    {"and not for the handoff queue",
     {{ChildState::idle, 1, true}, {ChildState::idle, 2}},
     0,
     2,
     {1},
     Waiting::pressure},
};

std::size_t count(const std::vector<ChildView>& children, ChildState state) {
    return static_cast<std::size_t>(std::ranges::count(children, state, &ChildView::state));
}

}  // namespace

TEST_CASE("who gives up, by example") {
    for (const Row& row : table) {
        CAPTURE(row.name);
        const Decision decision = decide({row.children, row.listen_queue, row.handoff_queue});
        CHECK(decision.give_up == row.give_up);
        CHECK(decision.mark == row.mark);
    }
}

TEST_CASE("which queue somebody waits in makes no difference") {
    const std::vector<ChildView> children{
        {ChildState::idle, 4}, {ChildState::idle, 2}, {ChildState::idle, 3}};
    for (std::uint64_t all = 0; all <= 5; ++all) {
        const Decision expected = decide({children, all, 0});
        for (std::uint64_t handed = 1; handed <= all; ++handed) {
            const Decision decision = decide({children, all - handed, handed});
            CHECK(decision.give_up == expected.give_up);
            CHECK(decision.mark == expected.mark);
        }
    }
}

TEST_CASE("every decision keeps the rules, whatever the pool looks like") {
    std::mt19937_64 random{42};
    for (int round = 0; round < 20000; ++round) {
        std::vector<ChildView> children(random() % 12);
        for (ChildView& child : children) {
            child.state = ChildState{static_cast<std::uint32_t>(random() % 8)};
            child.since_ns = random() % 4 == 0 ? random() : random() % 6;
        }
        const std::uint64_t listening = random() % 3 == 0 ? 0 : random() % 14;
        const std::uint64_t handed = random() % 3 == 0 ? 0 : random() % 14;
        const Decision decision = decide({children, listening, handed});

        const std::uint64_t waiters = listening + handed;
        const std::size_t idle = count(children, ChildState::idle);
        const std::uint64_t provided =
            count(children, ChildState::free) + count(children, ChildState::giving_up);
        const std::uint64_t needed = waiters > provided ? waiters - provided : 0;
        // Never more than needed, and as many as there are.
        REQUIRE(decision.give_up.size() == std::min<std::uint64_t>(needed, idle));
        REQUIRE((decision.mark == Waiting::nobody) == (waiters == 0));
        REQUIRE((decision.mark == Waiting::pressure) == (waiters > provided + idle));
        std::uint64_t latest = 0;
        std::vector<bool> chosen(children.size());
        for (const std::uint32_t slot : decision.give_up) {
            REQUIRE(slot < children.size());
            REQUIRE(children[slot].state == ChildState::idle);
            REQUIRE_FALSE(chosen[slot]);
            REQUIRE(children[slot].since_ns >= latest);
            chosen[slot] = true;
            latest = children[slot].since_ns;
        }
        for (std::size_t slot = 0; slot < children.size() && !decision.give_up.empty(); ++slot) {
            // Whoever may keep its connection has been idle for no longer than those who may not.
            REQUIRE((children[slot].state != ChildState::idle || chosen[slot] ||
                     children[slot].since_ns >= latest));
        }
    }
}

namespace {

// How many waiters can be provided for at the most, by trying all ways: a child that has time, or could have,
// takes one, a reserved one only from the listen queue.
std::uint64_t most_provided(const std::vector<ChildView>& children, std::uint64_t listening,
                            std::uint64_t handed) {
    std::uint64_t any = 0;
    std::uint64_t reserved = 0;
    for (const ChildView& child : children) {
        const bool can = child.state == ChildState::free || child.state == ChildState::giving_up ||
                         child.state == ChildState::idle;
        any += can && !child.reserved ? 1U : 0U;
        reserved += can && child.reserved ? 1U : 0U;
    }
    std::uint64_t most = 0;
    for (std::uint64_t by_any = 0; by_any <= std::min(any, listening); ++by_any) {
        const std::uint64_t from_listen = by_any + std::min(reserved, listening - by_any);
        most = std::max(most, from_listen + std::min(any - by_any, handed));
    }
    return most;
}

std::vector<ChildView> with_give_ups(std::vector<ChildView> children, const Slots& slots) {
    for (const std::uint32_t slot : slots) {
        children[slot].state = ChildState::giving_up;
    }
    std::erase_if(children, [](const ChildView& child) { return child.state == ChildState::idle; });
    return children;
}

}  // namespace

TEST_CASE("with reserved children nobody is left waiting who could be served, and nobody gives up in vain") {
    std::mt19937_64 random{43};
    for (int round = 0; round < 20000; ++round) {
        std::vector<ChildView> children(random() % 10);
        for (ChildView& child : children) {
            child.state = ChildState{static_cast<std::uint32_t>(random() % 8)};
            child.since_ns = random() % 6;
            child.reserved = random() % 3 == 0;
        }
        const std::uint64_t listening = random() % 3 == 0 ? 0 : random() % 8;
        const std::uint64_t handed = random() % 3 == 0 ? 0 : random() % 8;
        const Decision decision = decide({children, listening, handed});
        const std::uint64_t most = most_provided(children, listening, handed);
        const std::uint64_t before = most_provided(with_give_ups(children, {}), listening, handed);
        REQUIRE(most_provided(with_give_ups(children, decision.give_up), listening, handed) == most);
        REQUIRE(decision.give_up.size() == most - before);
        REQUIRE((decision.mark == Waiting::nobody) == (listening + handed == 0));
        REQUIRE((decision.mark == Waiting::pressure) == (listening + handed > most));
        for (const std::uint32_t slot : decision.give_up) {
            REQUIRE(children[slot].state == ChildState::idle);
        }
    }
}
