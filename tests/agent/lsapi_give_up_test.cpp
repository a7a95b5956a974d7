// SPDX-License-Identifier: Apache-2.0
// LSAPI: how a child gives its connection up, and that no request is lost by it.
#include <chrono>
#include <csignal>
#include <netinet/tcp.h>

#include <doctest/doctest.h>

#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;
using cede::children::GiveUpBy;
using cede::children::Waiting;

TEST_CASE("lsapi: a parked connection stays open and is served by the next child that gets it") {
    for (const bool unix_sockets : {false, true}) {
        StandIn::Options options;
        options.unix_sockets = unix_sockets;
        Stage stage{options};
        Client client = stage.used_client();
        REQUIRE(stage.tell_to_give_up(0));
        UniqueFd parked = stage.hear_parked();
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(stage.slot(0).parked == 1);
        CHECK(client.silent());
        // Whoever gets it reads without being told that there may be nothing.
        CHECK((::fcntl(parked.get(), F_GETFL) & O_NONBLOCK) == 0);
        // lsphp has seen from the address that this is TCP, on which it answers in two writes.
        int no_delay = 0;
        socklen_t size = sizeof no_delay;
        if (!unix_sockets) {
            ::getsockopt(parked.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size);
        }
        CHECK(no_delay == (unix_sockets ? 0 : 1));
        const pid_t other = stage.start_child(1);
        REQUIRE(stage.stop(stage.child));
        stage.hand_off(std::move(parked));
        CHECK(client.ask(command("pid")).starts_with(std::to_string(other)));
        CHECK(client.ask(command("hello")) == "hello");
        ::kill(stage.child, SIGCONT);
    }
}

TEST_CASE("lsapi: a new connection that has sent nothing can be given up like any other") {
    Stage stage;
    Client client = stage.client();
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(stage.tell_to_give_up(0));
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(client.silent());
    stage.hand_off(std::move(parked));
    CHECK(client.ask(command("trace")).find("garbled") == std::string::npos);
}

TEST_CASE("lsapi: a request that comes while its connection is given up waits in the socket") {
    Stage stage;
    for (int i = 0; i < 200; ++i) {
        CAPTURE(i);
        Client client = stage.used_client();
        // Both at the same time; which one the child sees first is left to chance.
        bool told = false;
        if (i % 2 == 0) {
            told = stage.tell_to_give_up(0);
            REQUIRE(client.send(command("body", "", "some body")));
        } else {
            REQUIRE(client.send(command("body", "", "some body")));
            told = stage.tell_to_give_up(0);
        }
        if (told) {
            UniqueFd parked = stage.hear_parked();
            REQUIRE(stage.becomes(0, ChildState::free));
            stage.hand_off(std::move(parked));
        }
        REQUIRE(client.read_answer().text == "some body");
        REQUIRE_FALSE(stage.has_parked());
        client.close();
        REQUIRE(stage.becomes(0, ChildState::free));
    }
    CHECK(stage.slot(0).requests == 400);
}

TEST_CASE(
    "lsapi: by closing, the peer is told, the supervisor sees to the end, and the child is free at once") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    Client client = stage.used_client();
    REQUIRE(stage.tell_to_give_up(0));
    CHECK(client.told_to_close());
    UniqueFd seen_off = stage.hear_seen_off();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(client.silent());
    CHECK_FALSE(stage.has_parked());  // once more, when the program closes
    CHECK(stage.slot(0).closed == 1);
    CHECK(stage.slot(0).parked == 0);
    Client next = stage.client();
    CHECK(next.ask(command("hello")) == "hello");
    // Nobody else has a copy.
    client.close();
    CHECK(at_end(seen_off.get()));
}

TEST_CASE("lsapi: by closing, a connection ends when the supervisor closes it") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    Client client = stage.used_client();
    REQUIRE(stage.tell_to_give_up(0));
    CHECK(client.told_to_close());
    stage.hear_seen_off().reset();
    CHECK(client.ends());
}

TEST_CASE("lsapi: by closing, a request that crosses is answered by another child") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    Client client = stage.used_client();
    REQUIRE(stage.tell_to_give_up(0));
    UniqueFd seen_off = stage.hear_seen_off();
    REQUIRE(client.send(command("pid")));
    const pid_t other = stage.start_child(1);
    REQUIRE(stage.stop(stage.child));
    stage.hand_off(std::move(seen_off));
    const Answer answer = client.read_answer();
    CHECK(answer.told_to_close);
    CHECK(answer.complete);
    CHECK(answer.text.starts_with(std::to_string(other)));
    ::kill(stage.child, SIGCONT);
}

TEST_CASE("lsapi: by closing, no request is lost or run twice, whenever it comes") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    std::uint64_t served = 0;
    for (int i = 0; i < 200; ++i) {
        CAPTURE(i);
        Client client = stage.used_client();
        REQUIRE(client.send(i % 2 == 0 ? command("hello") : ""));
        const bool told = stage.tell_to_give_up(0);
        REQUIRE(client.send(i % 2 == 1 ? command("hello") : ""));
        // The child serves what it still sees; else the supervisor finds it on the connection.
        if (told && soon([&] { return stage.has_parked() || client.holds("hello"); }) && stage.has_parked()) {
            REQUIRE(stage.becomes(0, ChildState::free));
            stage.hand_off(stage.hear_seen_off());
        }
        REQUIRE(client.read_answer().text == "hello");
        client.close();
        REQUIRE(stage.becomes(0, ChildState::free));
        served += 2;
        REQUIRE(stage.slot(0).requests == served);
    }
}

TEST_CASE("lsapi: by closing, a connection without any answer yet is parked all the same, if there is room") {
    for (const bool room : {true, false}) {
        CAPTURE(room);
        Stage stage;
        stage.control().give_up_by = room ? GiveUpBy::closing : GiveUpBy::closing_even_new;
        Client client = stage.client();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(stage.tell_to_give_up(0));
        if (room) {
            const UniqueFd parked = stage.hear_parked();
            CHECK(client.silent());
        } else {
            CHECK(client.told_to_close());
            CHECK(client.ends());
        }
        CHECK(stage.becomes(0, ChildState::free));
        CHECK_FALSE(stage.has_parked());
        CHECK(stage.slot(0).parked == (room ? 1 : 0));
        CHECK(stage.slot(0).closed == (room ? 0 : 1));
    }
}

TEST_CASE("lsapi: by closing, a request that has come is served first") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    Client client = stage.used_client();
    REQUIRE(stage.stop(stage.child));
    REQUIRE(client.send(command("hello")));
    REQUIRE(stage.tell_to_give_up(0));
    ::kill(stage.child, SIGCONT);
    const Answer answer = client.read_answer();
    CHECK(answer.text == "hello");
    CHECK_FALSE(answer.told_to_close);
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("lsapi: under pressure a child gives up at the end of its answer without being told") {
    for (const bool parking : {true, false}) {
        CAPTURE(parking);
        Stage stage;
        stage.control().give_up_by = parking ? GiveUpBy::parking : GiveUpBy::closing;
        Client client = stage.client();
        REQUIRE(stage.becomes(0, ChildState::idle));
        stage.control().waiting = Waiting::pressure;
        CHECK(client.ask(command("hello")) == "hello");
        CHECK((parking || client.told_to_close()));
        UniqueFd given_up = parking ? stage.hear_parked() : stage.hear_seen_off();
        CHECK(stage.becomes(0, ChildState::free));
        stage.control().waiting = Waiting::nobody;
        stage.hand_off(std::move(given_up));
        CHECK(client.ask(command("hello")) == "hello");
    }
}

TEST_CASE("lsapi: under pressure a new connection that sends nothing is parked, one with a request served") {
    Stage stage;
    stage.control().waiting = Waiting::pressure;
    Client quiet = stage.client();
    const UniqueFd parked = stage.hear_parked();
    CHECK(quiet.silent());
    REQUIRE(stage.stop(stage.child));
    Client asking = stage.client();
    REQUIRE(asking.send(command("hello")));
    ::kill(stage.child, SIGCONT);
    CHECK(asking.read_answer().text == "hello");
}

TEST_CASE("lsapi: above the limit of kept connections a child tells its peer to close behind the answer") {
    Stage stage;
    stage.start_child(1);
    stage.control().keepalive_limit = 1;
    Client first = stage.client();
    CHECK(first.ask(command("hello")) == "hello");
    CHECK((stage.becomes(0, ChildState::idle) || stage.becomes(1, ChildState::idle)));
    Client second = stage.client();
    CHECK(second.ask(command("hello")) == "hello");
    CHECK(second.told_to_close());
    stage.hear_seen_off().reset();
    CHECK(second.ends());
    CHECK(first.silent());
    CHECK(stage.slot(0).closed + stage.slot(1).closed == 1);
    CHECK(first.ask(command("hello")) == "hello");
}

TEST_CASE("lsapi: with a limit of none every peer is told to close behind its answer") {
    Stage stage;
    stage.control().keepalive_limit = 0;
    for (int i = 0; i < 3; ++i) {
        Client client = stage.client();
        CHECK(client.ask(command("hello")) == "hello");
        CHECK(client.told_to_close());
        const UniqueFd seen_off = stage.hear_seen_off();
        CHECK(stage.becomes(0, ChildState::free));
    }
    CHECK(stage.slot(0).closed == 3);
}

TEST_CASE("lsapi: what was read ahead of the next request keeps its connection here") {
    const std::string request = command("hello");
    Stage stage;
    Client client = stage.client();
    for (const std::size_t cut : {1U, 7U, 8U, 44U, 200U}) {
        CAPTURE(cut);
        stage.control().waiting = Waiting::pressure;
        CHECK(client.ask(request + request.substr(0, cut)) == "hello");
        CHECK(stage.becomes(0, ChildState::reading));
        CHECK_FALSE(stage.tell_to_give_up(0));
        CHECK_FALSE(stage.has_parked());
        stage.control().waiting = Waiting::nobody;
        CHECK(client.ask(std::string_view{request}.substr(cut)) == "hello");
        CHECK(stage.becomes(0, ChildState::idle));
    }
    CHECK(stage.slot(0).parked == 0);
}

TEST_CASE("lsapi: a child that is told while a signal interrupts it gives up all the same") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    StandIn::Options options;
    options.environment = {"HOST_GATE=" + gate.path};
    Stage stage{options};
    Client client = stage.used_client();
    // Asleep, so that the signal interrupts its waiting. The handler runs until the gate opens.
    REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
    REQUIRE(::kill(stage.child, SIGUSR2) == 0);
    UniqueFd open_gate;
    CHECK(soon([&] {
        open_gate = gate.hold();
        return static_cast<bool>(open_gate);
    }));
    REQUIRE(stage.tell_to_give_up(0));
    open_gate.reset();
    CHECK(soon([&] { return stage.has_parked(); }));
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).parked == 1);
}

TEST_CASE("lsapi: a signal that comes while a new connection is silent does not lose it") {
    Stage stage;
    Client client = stage.client();
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
    REQUIRE(::kill(stage.child, SIGUSR2) == 0);
    UniqueFd parked = stage.hear_parked();
    stage.hand_off(std::move(parked));
    CHECK(client.ask(command("trace")).starts_with("select listener errno 4\nselect listener 1\naccept 5\n"));
}

TEST_CASE(
    "lsapi: a supervisor that takes nothing gets no connection, and its child is held a second at most") {
    for (const GiveUpBy by : {GiveUpBy::parking, GiveUpBy::closing}) {
        CAPTURE(static_cast<int>(by));
        Stage stage;
        stage.control().give_up_by = by;
        Client client = stage.used_client();
        REQUIRE(stage.fill_parking() > 0);
        const auto start = std::chrono::steady_clock::now();
        REQUIRE(stage.tell_to_give_up(0));
        CHECK(client.told_to_close());
        CHECK(client.ends());
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{3});
        CHECK(stage.slot(0).parked == 0);
        CHECK(stage.slot(0).closed == 1);
    }
}

TEST_CASE("lsapi: a peer that reads nothing does not hold the child that tells it to close") {
    StandIn::Options options;
    options.unix_sockets = true;
    Stage stage{options};
    stage.control().keepalive_limit = 0;
    for (const std::string_view size : {"20000", "100000", "160000"}) {
        CAPTURE(size);
        Client client = stage.client();
        REQUIRE(client.send(command("big", size)));
        if (stage.becomes(0, ChildState::free)) {
            // All of it has found room; so has what tells to close, or it was left out.
            CHECK(client.read_answer().complete);
        }
        client.close();
        CHECK(stage.becomes(0, ChildState::free));
    }
}
