// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/dispatcher_stage.h"

using namespace cede::tests;
using namespace std::chrono_literals;

namespace {

std::chrono::milliseconds head_age(Stage& stage) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        stage.dispatcher().watch().head_age(std::chrono::steady_clock::now()));
}

}  // namespace

TEST_CASE("who stands first in a listen queue has an age, which children can read") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Stage stage{1, unix_socket};
        CHECK(head_age(stage) == 0ms);
        const UniqueFd first = stage.arrive();
        stage.look();
        std::this_thread::sleep_for(60ms);
        const UniqueFd second = stage.arrive();
        stage.look();
        CHECK(head_age(stage) >= 60ms);
        CHECK(stage.listen_wait_ms() >= 60);
        const UniqueFd taken = stage.accept();
        ++stage.slot(0).accepted;
        stage.look();
        CHECK(head_age(stage) < 60ms);
        const UniqueFd last = stage.accept();
        stage.dispatcher().watch().took(1);
        stage.look();
        CHECK(head_age(stage) == 0ms);
        CHECK(stage.listen_wait_ms() == 0);
    }
}

TEST_CASE("what a child has taken counts when it has ended and another is in its slot") {
    Stage stage{2};
    std::vector<UniqueFd> held;
    for (int i = 0; i < 3; ++i) {
        held.push_back(stage.arrive());
    }
    stage.look();
    std::this_thread::sleep_for(30ms);
    for (int i = 0; i < 3; ++i) {
        held.push_back(stage.arrive());
        held.push_back(stage.accept());
    }
    stage.slot(1).accepted += 3;
    stage.dispatcher().watch().child_gone(1);
    stage.slot(1).accepted = 0;
    stage.look();
    CHECK(head_age(stage) < 30ms);
}

TEST_CASE("a queue is full for the watch when the kernel takes nobody more") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Stage stage{1, unix_socket};
        REQUIRE(::listen(stage.listener().fd.get(), 3) == 0);
        std::vector<UniqueFd> clients;
        for (int i = 0; i < 2; ++i) {
            clients.push_back(stage.arrive());
        }
        stage.look();
        CHECK(stage.dispatcher().watch().fullness(0).sums().times == 0);
        for (int i = 0; i < 2; ++i) {
            clients.push_back(stage.arrive());
        }
        stage.look();
        CHECK(stage.dispatcher().watch().fullness(0).sums().times == 1);
        // There is one more in it than the backlog, and that is all.
        CHECK(stage.dispatcher().queues()[0].waiting == 4);
        CHECK(stage.dispatcher().queues()[0].backlog == 3U);
        if (unix_socket) {
            CHECK(stage.refused());
        }
    }
}

TEST_CASE("the pool is saturated while somebody waits in vain, and not while a child is free or idle") {
    Stage stage{2};
    const auto sums = [&stage] { return stage.dispatcher().watch().saturation().sums(); };
    stage.set(0, ChildState::free);
    stage.set(1, ChildState::idle);
    std::vector<UniqueFd> clients;
    clients.push_back(stage.arrive());
    clients.push_back(stage.arrive());
    stage.look();
    std::this_thread::sleep_for(60ms);
    stage.look();
    CHECK(sums().times + sums().moments == 0);
    stage.set(0, ChildState::busy);
    stage.set(1, ChildState::busy);
    stage.look();
    std::this_thread::sleep_for(60ms);
    stage.look();
    CHECK(sums().times == 1);
    CHECK(sums().waited == 2);
    CHECK(sums().lasted >= 20ms);
}
