// SPDX-License-Identifier: Apache-2.0
#include "pm/dispatcher.h"

#include <atomic>
#include <chrono>
#include <sys/epoll.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using cede::children::ChildState;
using cede::children::GiveUpBy;
using cede::children::Waiting;

TEST_CASE("a queued connection makes the longest idle child give up, and rings for it") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Stage stage{3, unix_socket};
        stage.set(0, ChildState::idle, 30);
        stage.set(1, ChildState::idle, 10);
        stage.set(2, ChildState::idle, 20);
        const UniqueFd client = stage.arrive();
        CHECK(stage.turn() == 1);
        CHECK(stage.state(0) == ChildState::idle);
        CHECK(stage.state(1) == ChildState::giving_up);
        CHECK(stage.state(2) == ChildState::idle);
        CHECK(stage.rung(1));
        CHECK_FALSE(stage.rung(0));
        CHECK_FALSE(stage.rung(2));
        CHECK(stage.mark() == Waiting::attention);
        CHECK(stage.dispatcher().anybody_waits());

        // Looking again finds it provided for.
        stage.look();
        CHECK(stage.count(ChildState::giving_up) == 1);
        CHECK_FALSE(stage.rung(1));

        // A second waiter takes the next one.
        const UniqueFd second = stage.arrive();
        stage.turn();
        CHECK(stage.state(2) == ChildState::giving_up);
        CHECK(stage.state(0) == ChildState::idle);
    }
}

TEST_CASE("when the queue is empty again nobody waits") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.mark() == Waiting::attention);
    const UniqueFd served = stage.accept();
    REQUIRE(served);
    stage.set(0, ChildState::reading);
    stage.look();
    CHECK(stage.mark() == Waiting::nobody);
    CHECK_FALSE(stage.dispatcher().anybody_waits());
    // And the next arrival is noticed as the first was.
    stage.set(1, ChildState::idle, 1);
    const UniqueFd next = stage.arrive();
    CHECK(stage.turn() == 1);
    CHECK(stage.state(1) == ChildState::giving_up);
}

TEST_CASE("if nobody is idle the mark is pressure, and arrivals wake the supervisor no more") {
    Stage stage{2};
    const UniqueFd first = stage.arrive();
    CHECK(stage.turn() == 1);
    CHECK(stage.mark() == Waiting::pressure);
    CHECK(stage.dispatcher().anybody_waits());
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() == 0);
}

TEST_CASE("pressure ends when a few looks in a row have found children enough") {
    Stage stage{2};
    const UniqueFd first = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    stage.look();
    CHECK(stage.mark() == Waiting::pressure);
    // One that is free now is expected to take it, but the next one may come at once.
    stage.set(0, ChildState::free);
    stage.look();
    CHECK(stage.mark() == Waiting::pressure);
    // It has taken somebody else: the counting begins anew.
    stage.set(0, ChildState::busy);
    stage.look();
    UniqueFd served = stage.accept();
    stage.look();
    stage.look();
    CHECK(stage.mark() == Waiting::pressure);
    stage.calm_down();
    CHECK_FALSE(stage.dispatcher().anybody_waits());
}

TEST_CASE("checks are frequent under pressure, rare at attention, and there is always one") {
    Stage stage{1};
    const auto nobody = stage.dispatcher().check_interval();
    stage.set(0, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::attention);
    const auto attention = stage.dispatcher().check_interval();
    stage.set(0, ChildState::busy);
    stage.look();
    REQUIRE(stage.mark() == Waiting::pressure);
    CHECK(stage.dispatcher().check_interval() < attention);
    CHECK(attention <= std::chrono::milliseconds{100});
    CHECK(nobody <= std::chrono::seconds{1});
    CHECK(attention < nobody);
    CHECK(stage.dispatcher().check_interval().count() > 0);
}

TEST_CASE("who arrives while the mark goes from pressure to nobody is not overlooked") {
    Stage stage{1};
    const UniqueFd first = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    const UniqueFd served = stage.accept();
    stage.calm_down();
    stage.set(0, ChildState::idle, 1);
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() >= 1);
    CHECK(stage.state(0) == ChildState::giving_up);
}

TEST_CASE("the supervisor rests under pressure only, while children have enough to take, and for a moment") {
    Stage stage{4};
    CHECK_FALSE(stage.dispatcher().rest());
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    CHECK_FALSE(stage.dispatcher().rest());
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 20; ++i) {
        Ends ends = socket_pair(SOCK_STREAM);
        REQUIRE(send_text(ends.theirs.get(), "request"));
        stage.park(std::move(ends.ours));
        peers.push_back(std::move(ends.theirs));
        stage.turn();
    }
    stage.turn();
    const auto start = std::chrono::steady_clock::now();
    CHECK(stage.dispatcher().rest());
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{1});
    // Once few are left there is no rest, for somebody has to bring more.
    for (int i = 0; i < 20; ++i) {
        (void)stage.take_handed();
    }
    CHECK(soon([&] { return !stage.dispatcher().rest(); }));
    stage.dispatcher().begin_drain();
    CHECK_FALSE(stage.dispatcher().rest());
}

TEST_CASE("idle and busy together: the idle one goes, the rest is pressure") {
    Stage stage{3};
    stage.set(1, ChildState::idle, 5);
    const UniqueFd clients[] = {stage.arrive(), stage.arrive(), stage.arrive()};
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.rung(1));
    CHECK(stage.mark() == Waiting::pressure);
}

TEST_CASE("a free child is left to take the waiter by itself") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 1);
    stage.set(1, ChildState::free, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.state(0) == ChildState::idle);
    CHECK(stage.mark() == Waiting::attention);
    CHECK_FALSE(stage.rung(0));
    CHECK_FALSE(stage.rung(1));
    // It took something else instead, and rang.
    stage.set(1, ChildState::busy);
    stage.look();
    CHECK(stage.state(0) == ChildState::giving_up);
}

TEST_CASE("states that are none, and times that can not be, harm nobody else") {
    Stage stage{6};
    for (const std::uint32_t garbage : {8U, 77U, 0x80000000U, 0xffffffffU}) {
        stage.set(0, ChildState{garbage}, 0);
        stage.set(1, ChildState{garbage - 1 > 7 ? garbage - 1 : 99U}, ~std::uint64_t{0});
        stage.set(2, ChildState::idle, ~std::uint64_t{0});
        stage.set(3, ChildState::idle, 0);
        stage.set(4, ChildState::exiting, 0);
        stage.set(5, ChildState::starting, 0);
        const UniqueFd client = stage.arrive();
        stage.look();
        CHECK(stage.state(3) == ChildState::giving_up);
        CHECK(stage.state(2) == ChildState::idle);
        CHECK(stage.state(0) == ChildState{garbage});
        CHECK(stage.mark() == Waiting::attention);
        const UniqueFd served = stage.accept();
        stage.set(3, ChildState::busy);
        stage.look();
        CHECK(stage.mark() == Waiting::nobody);
        CHECK(stage.rung(3));
        CHECK_FALSE(stage.rung(0));
    }
}

TEST_CASE("a slot whose child has gone is not believed") {
    Stage stage{2};
    stage.pool().vacate(0);
    stage.set(0, ChildState::free);
    stage.set(1, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.state(0) == ChildState::free);
}

TEST_CASE(
    "of many that are parked at once, those that ask already are handed off, those that are silent stay") {
    Stage stage{2};
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 60; ++i) {
        Ends ends = i % 2 == 0 ? tcp_pair() : socket_pair(SOCK_STREAM);
        if (i % 3 == 0) {
            REQUIRE(send_text(ends.theirs.get(), "request"));
        }
        if (i % 3 == 1) {
            ends.theirs.reset();
        }
        stage.park(std::move(ends.ours));
        peers.push_back(std::move(ends.theirs));
    }
    int handed = 0;
    CHECK(soon([&] {
        stage.turn();
        while (const UniqueFd fd = stage.take_handed()) {
            char text[8];
            handed += ::recv(fd.get(), text, sizeof text, MSG_DONTWAIT) == 7;
        }
        return handed == 20 && stage.dispatcher().lot().size() == 20;
    }));
    CHECK(stage.dispatcher().lot().peers_gone() == 20);
    for (std::size_t i = 2; i < 60; i += 3) {
        CHECK(silent(peers[i].get()));
    }
}

TEST_CASE("where looks pile up the mark becomes pressure although idle children would suffice") {
    Stage stage{2};
    stage.set(0, ChildState::giving_up);
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::attention);
    CHECK(soon([&] {
        for (int i = 0; i < 50; ++i) {
            stage.look();
        }
        return stage.mark() == Waiting::pressure;
    }));
    const UniqueFd served = stage.accept();
    stage.calm_down();
}

TEST_CASE("a child that moves while it is being told is passed over for another one, never for two") {
    constexpr int rounds = 300;
    Stage stage{6};
    for (int round = 0; round < rounds; ++round) {
        for (std::uint32_t i = 1; i < 6; ++i) {
            stage.set(i, ChildState::idle, 100 + i);
        }
        stage.set(0, ChildState::idle, 1);
        std::atomic<bool> done{false};
        // The longest idle child gets a request all the time, and answers it at once.
        std::thread child{[&] {
            auto& state = stage.slot(0).state;
            while (!done) {
                ChildState expected = ChildState::idle;
                if (!state.compare_exchange_strong(expected, ChildState::reading)) {
                    return;
                }
                state = ChildState::idle;
            }
        }};
        const UniqueFd client = stage.arrive();
        stage.look();
        done = true;
        child.join();
        REQUIRE(stage.count(ChildState::giving_up) == 1);
        REQUIRE(stage.dispatcher().anybody_waits());
        const UniqueFd served = stage.accept();
        REQUIRE(served);
        for (std::uint32_t i = 0; i < 6; ++i) {
            stage.set(i, ChildState::busy);
            (void)stage.rung(i);
        }
        stage.look();
        stage.calm_down();
    }
}

TEST_CASE("a child that becomes idle when everybody seems busy is found, by itself or by the supervisor") {
    constexpr int rounds = 300;
    Stage stage{1};
    for (int round = 0; round < rounds; ++round) {
        stage.set(0, ChildState::busy);
        std::atomic<bool> gave_up_by_itself{false};
        std::atomic<bool> go{false};
        std::thread child{[&] {
            while (!go) {
            }
            // As the agent does: the state first, then the mark.
            stage.slot(0).state = ChildState::idle;
            gave_up_by_itself = stage.mark() == Waiting::pressure;
        }};
        const UniqueFd client = stage.arrive();
        go = true;
        stage.look();
        child.join();
        REQUIRE((gave_up_by_itself || stage.state(0) == ChildState::giving_up));
        const UniqueFd served = stage.accept();
        stage.look();
        stage.calm_down();
    }
}
