// SPDX-License-Identifier: Apache-2.0
// Wake-ups: which the dispatcher is spared, which it passes on, and what it finds without one.
#include <atomic>
#include <cstdint>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using cede::children::ChildState;
using cede::children::Waiting;

TEST_CASE("an arrival that a sleeping child takes does not wake the supervisor") {
    Stage stage{1};
    stage.set(0, ChildState::free);
    Poller child;
    REQUIRE(child.add(stage.listener().fd.get(), EPOLLIN | EPOLLEXCLUSIVE, {}));
    stage.dispatcher().child_is_watching();
    stage.turn();
    for (int i = 0; i < 20; ++i) {
        epoll_event event{};
        std::atomic<int> woken{-1};
        std::atomic<pid_t> thread{0};
        std::thread sleeper{[&] {
            thread = ::gettid();
            woken = ::epoll_wait(child.fd(), &event, 1, 5000);
        }};
        // Asleep in epoll_wait(2): only then is the wake-up its own.
        CHECK(soon([&] { return thread != 0 && sleeps(thread); }));
        const UniqueFd client = stage.arrive();
        sleeper.join();
        CHECK(woken == 1);
        CHECK(stage.poller().poll().empty());
        const UniqueFd served = stage.accept();
        CHECK(served);
    }
    // With the child at work the next one comes to us.
    const UniqueFd client = stage.arrive();
    CHECK(stage.turn() == 1);
}

TEST_CASE("a check finds what no event has told") {
    Stage stage{1};
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    stage.set(0, ChildState::idle, 1);
    stage.dispatcher().check();
    CHECK(stage.state(0) == ChildState::giving_up);
    CHECK(stage.dispatcher().anybody_waits());
}

TEST_CASE("a wake-up that came to nothing is passed on to those who have been free longest, one a waiter") {
    for (const bool by_check : {false, true}) {
        CAPTURE(by_check);
        Stage stage{5};
        const std::uint64_t since[] = {50, 20, 40, 10, 30};
        for (std::uint32_t i = 0; i < 5; ++i) {
            stage.set(i, i == 3 ? ChildState::idle : ChildState::free, since[i]);
        }
        const auto wake = [&] {
            if (by_check) {
                stage.dispatcher().check();
            } else {
                stage.dispatcher().wake_later();
                stage.turn();
            }
        };
        wake();
        for (std::uint32_t i = 0; i < 5; ++i) {
            CHECK_FALSE(stage.rung(i));
        }
        const UniqueFd first = stage.arrive();
        const UniqueFd second = stage.arrive();
        stage.turn();
        CHECK_FALSE(stage.rung(1));
        wake();
        CHECK(stage.rung(1));
        CHECK(stage.rung(4));
        CHECK_FALSE(stage.rung(0));
        CHECK_FALSE(stage.rung(2));
        CHECK_FALSE(stage.rung(3));
        CHECK(stage.state(3) == ChildState::idle);
    }
}
