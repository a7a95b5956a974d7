// SPDX-License-Identifier: Apache-2.0
// The dispatcher's part in parking: what children give up, and what becomes of it.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using cede::children::ChildState;
using cede::children::GiveUpBy;
using cede::children::Waiting;

TEST_CASE("a parked connection that becomes readable is handed off") {
    for (const bool tcp : {true, false}) {
        Stage stage{2};
        stage.set(0, ChildState::free);
        Ends ends = tcp ? tcp_pair() : socket_pair(SOCK_STREAM);
        stage.park(std::move(ends.ours));
        stage.turn();
        CHECK(stage.dispatcher().lot().size() == 1);
        CHECK_FALSE(static_cast<bool>(stage.take_handed()));
        CHECK(silent(ends.theirs.get()));
        REQUIRE(send_text(ends.theirs.get(), "request"));
        CHECK(soon([&] {
            stage.turn();
            return stage.dispatcher().lot().size() == 0;
        }));
        CHECK(stage.mark() == Waiting::attention);
        const UniqueFd taken = stage.take_handed();
        REQUIRE(taken);
        char text[16];
        CHECK(::recv(taken.get(), text, sizeof text, MSG_DONTWAIT) == 7);
        stage.look();
        CHECK(stage.mark() == Waiting::nobody);
    }
}

TEST_CASE("a parked connection with a request makes an idle child give up") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 2);
    stage.set(1, ChildState::idle, 1);
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours));
    stage.turn();
    CHECK(stage.count(ChildState::idle) == 2);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.rung(1));
}

TEST_CASE("what is sent in the place of a parked connection is dropped") {
    Stage stage{1};
    const int socket = stage.dispatcher().handoff_receiver();
    const cede::children::ChildReport report{cede::children::ChildSays::park};
    Ends ends = socket_pair(SOCK_STREAM);
    REQUIRE(cede::children::send_message(socket, &report, sizeof report, -1));
    REQUIRE(cede::children::send_message(socket, "x", 1, ends.ours.get()));
    REQUIRE(cede::children::send_message(socket, std::string(500, 'x').data(), 500, ends.ours.get()));
    ends.ours.reset();
    stage.turn();
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK(at_end(ends.theirs.get()));
    // What is no socket can not be watched by everybody, and must not stop the others.
    const Ends pipe = pipe_pair();
    const UniqueFd file{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    const UniqueFd folder{::open("/", O_RDONLY | O_CLOEXEC)};
    for (const int fd : {pipe.ours.get(), file.get(), folder.get()}) {
        REQUIRE(cede::children::send_message(socket, &report, sizeof report, fd));
    }
    Ends good = socket_pair(SOCK_STREAM);
    stage.park(std::move(good.ours));
    stage.turn();
    REQUIRE(send_text(good.theirs.get(), "request"));
    bool found = false;
    CHECK(soon([&] {
        stage.turn();
        while (const UniqueFd fd = stage.take_handed()) {
            char text[8];
            found = found || ::recv(fd.get(), text, sizeof text, MSG_DONTWAIT) == 7;
        }
        return found;
    }));
}

TEST_CASE("waiters in both queues are added up") {
    Stage stage{3};
    for (std::uint32_t i = 0; i < 3; ++i) {
        stage.set(i, ChildState::idle, 10 - i);
    }
    Ends ends = socket_pair(SOCK_STREAM);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.park(std::move(ends.ours));
    const UniqueFd client = stage.arrive();
    stage.turn();
    stage.turn();
    CHECK(stage.state(2) == ChildState::giving_up);
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.state(0) == ChildState::idle);
}

TEST_CASE("a parked connection that makes room with a request on it is handed off, not closed") {
    Stage stage{1, false, {1, 100}};
    Ends first = socket_pair(SOCK_STREAM);
    Ends second = socket_pair(SOCK_STREAM);
    stage.park(std::move(first.ours));
    stage.turn();
    REQUIRE(send_text(first.theirs.get(), "request"));
    stage.park(std::move(second.ours));
    stage.turn();
    CHECK(stage.mark() == Waiting::pressure);
    CHECK(static_cast<bool>(stage.take_handed()));
    CHECK(stage.dispatcher().lot().size() == 1);
}

TEST_CASE("before descriptors run out children close what they give up, and park again when there is room") {
    Stage stage{1, false, {100, 16}};
    CHECK(stage.give_up_by() == GiveUpBy::parking);
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 16; ++i) {
        CHECK(stage.give_up_by() == GiveUpBy::parking);
        Ends ends = socket_pair(SOCK_STREAM);
        stage.park(std::move(ends.ours));
        stage.turn();
        peers.push_back(std::move(ends.theirs));
    }
    CHECK(stage.give_up_by() == GiveUpBy::closing_even_new);
    // Not at the first that leaves, or it would go to and fro.
    const auto leave = [&] {
        peers.pop_back();
        CHECK(soon([&] {
            stage.turn();
            return stage.dispatcher().lot().size() == peers.size();
        }));
    };
    leave();
    CHECK(stage.give_up_by() == GiveUpBy::closing_even_new);
    while (!peers.empty()) {
        leave();
    }
    CHECK(stage.give_up_by() == GiveUpBy::parking);
}

TEST_CASE("children that close by configuration do so again when there is room again") {
    Stage stage{1, false, {100, 1}, GiveUpBy::closing};
    CHECK(stage.give_up_by() == GiveUpBy::closing);
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours));
    stage.turn();
    CHECK(stage.give_up_by() == GiveUpBy::closing_even_new);
    ends.theirs.reset();
    CHECK(soon([&] {
        stage.turn();
        return stage.dispatcher().lot().size() == 0;
    }));
    CHECK(stage.give_up_by() == GiveUpBy::closing);
}

TEST_CASE("a hundred parked requests reach one child in order, as fast as it takes them") {
    Stage stage{1};
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 100; ++i) {
        Ends ends = socket_pair(SOCK_STREAM);
        stage.park(std::move(ends.ours));
        stage.turn();
        peers.push_back(std::move(ends.theirs));
    }
    CHECK(stage.dispatcher().lot().size() == 100);
    for (int i = 0; i < 100; ++i) {
        const char byte = static_cast<char>(i);
        REQUIRE(::send(peers[static_cast<std::size_t>(i)].get(), &byte, 1, 0) == 1);
    }
    for (int i = 0; i < 100; ++i) {
        UniqueFd taken;
        REQUIRE(soon([&] {
            stage.turn();
            return static_cast<bool>(taken = stage.take_handed());
        }));
        char byte = -1;
        REQUIRE(::recv(taken.get(), &byte, 1, MSG_DONTWAIT) == 1);
        REQUIRE(byte == static_cast<char>(i));
    }
    stage.look();
    stage.calm_down();
}

TEST_CASE("draining closes parked connections without a request and serves the others") {
    Stage stage{1};
    Ends quiet = socket_pair(SOCK_STREAM);
    Ends asked = socket_pair(SOCK_STREAM);
    Ends late = socket_pair(SOCK_STREAM);
    stage.park(std::move(quiet.ours));
    stage.park(std::move(asked.ours));
    stage.turn();
    CHECK(stage.dispatcher().lot().size() == 2);
    CHECK_FALSE(stage.dispatcher().drained());
    REQUIRE(send_text(asked.theirs.get(), "request"));
    stage.dispatcher().begin_drain();
    stage.turn();
    CHECK(at_end(quiet.theirs.get()));
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK(stage.dispatcher().drained());
    CHECK(static_cast<bool>(stage.take_handed()));
    // Who is parked from now on is not kept, either.
    stage.park(std::move(late.ours));
    stage.turn();
    CHECK(at_end(late.theirs.get()));
}

TEST_CASE("a doorbell without a channel rings nobody") {
    Dispatcher::ring(Pool::Child{});
}
