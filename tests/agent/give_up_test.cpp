// SPDX-License-Identifier: Apache-2.0
// How a child gives its connection up, and that no request is lost by it.
#include <csignal>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::ChildState;
using cede::children::GiveUpBy;
using cede::children::Waiting;

TEST_CASE("a parked connection stays open and is served by the next child that gets it") {
    for (const bool unix_sockets : {false, true}) {
        StandIn::Options options;
        options.unix_sockets = unix_sockets;
        Stage stage{options};
        const UniqueFd client = stage.used_connection();
        REQUIRE(stage.tell_to_give_up(0));
        UniqueFd parked = stage.hear_parked();
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(stage.slot(0).parked == 1);
        CHECK(silent(client.get()));
        const pid_t other = stage.start_child(1);
        REQUIRE(stage.stop(stage.child));
        stage.hand_off(std::move(parked));
        CHECK(ask(client.get(), command("pid")).starts_with(std::to_string(other)));
        ::kill(stage.child, SIGCONT);
    }
}

TEST_CASE("a new connection that has sent nothing can be given up like any other") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(stage.tell_to_give_up(0));
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(silent(client.get()));
    stage.hand_off(std::move(parked));
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a request that comes while its connection is given up waits in the socket") {
    Stage stage;
    for (int i = 0; i < 200; ++i) {
        const UniqueFd client = stage.used_connection();
        // Both at the same time; which one the child sees first is left to chance.
        bool told = false;
        if (i % 2 == 0) {
            told = stage.tell_to_give_up(0);
            REQUIRE(send_text(client.get(), command("serial")));
        } else {
            REQUIRE(send_text(client.get(), command("serial")));
            told = stage.tell_to_give_up(0);
        }
        if (told) {
            UniqueFd parked = stage.hear_parked();
            REQUIRE(stage.becomes(0, ChildState::free));
            stage.hand_off(std::move(parked));
        }
        REQUIRE(read_answer(client.get()).complete);
        REQUIRE_FALSE(stage.has_parked());
    }
}

TEST_CASE("by closing, the connection ends, and the child is free") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    const UniqueFd client = stage.used_connection();
    REQUIRE(stage.tell_to_give_up(0));
    CHECK(ends_cleanly(client.get()));
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).closed == 1);
    CHECK(stage.slot(0).parked == 0);
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("by closing, a connection without any answer yet is parked all the same, if there is room") {
    for (const bool room : {true, false}) {
        CAPTURE(room);
        Stage stage;
        stage.control().give_up_by = room ? GiveUpBy::closing : GiveUpBy::closing_even_new;
        const UniqueFd client = stage.connect();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(stage.tell_to_give_up(0));
        if (room) {
            const UniqueFd parked = stage.hear_parked();
            CHECK(silent(client.get()));
        } else {
            CHECK(ends_cleanly(client.get()));
        }
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(stage.slot(0).parked == (room ? 1 : 0));
        CHECK(stage.slot(0).closed == (room ? 0 : 1));
    }
}

TEST_CASE("by closing, a request that has come is served first") {
    Stage stage;
    stage.control().give_up_by = GiveUpBy::closing;
    const UniqueFd client = stage.used_connection();
    REQUIRE(stage.stop(stage.child));
    REQUIRE(send_text(client.get(), command("hello")));
    REQUIRE(stage.tell_to_give_up(0));
    ::kill(stage.child, SIGCONT);
    CHECK(read_answer(client.get()).text == "hello");
}

TEST_CASE("under pressure a child parks at the end of its answer without being told") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(stage.becomes(0, ChildState::idle));
    stage.control().waiting = Waiting::pressure;
    CHECK(ask(client.get(), command("hello")) == "hello");
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.becomes(0, ChildState::free));
    stage.control().waiting = Waiting::nobody;
    stage.hand_off(std::move(parked));
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("under pressure a new connection that sends nothing is parked at once, one with a request served") {
    Stage stage;
    stage.control().waiting = Waiting::pressure;
    UniqueFd quiet = stage.connect();
    const UniqueFd parked = stage.hear_parked();
    CHECK(silent(quiet.get()));
    REQUIRE(stage.stop(stage.child));
    const UniqueFd asking = stage.connect();
    REQUIRE(send_text(asking.get(), command("hello")));
    ::kill(stage.child, SIGCONT);
    CHECK(read_answer(asking.get()).text == "hello");
}

TEST_CASE("above the limit of kept connections a child closes behind its answer") {
    Stage stage;
    stage.start_child(1);
    stage.control().keepalive_limit = 1;
    const UniqueFd first = stage.connect();
    CHECK(ask(first.get(), command("hello")) == "hello");
    CHECK((stage.becomes(0, ChildState::idle) || stage.becomes(1, ChildState::idle)));
    const UniqueFd second = stage.connect();
    CHECK(ask(second.get(), command("hello")) == "hello");
    CHECK(ends_cleanly(second.get()));
    CHECK(silent(first.get()));
    CHECK(stage.slot(0).closed + stage.slot(1).closed == 1);
    CHECK(ask(first.get(), command("hello")) == "hello");
}

TEST_CASE("a child within the limit gives its peer a moment for the next request although others wait") {
    Stage stage;
    stage.control().keepalive_limit = 1;
    stage.control().give_up_by = GiveUpBy::closing;
    bool kept = false;
    // Its moment may be over on a busy machine before we have had ours.
    for (int attempt = 0; attempt < 50 && !kept; ++attempt) {
        stage.control().waiting = Waiting::nobody;
        const UniqueFd client = stage.used_connection();
        const std::uint64_t closed = stage.slot(0).closed;
        stage.control().waiting = Waiting::pressure;
        CHECK(ask(client.get(), command("hello")) == "hello");
        const timespec pause{.tv_sec = 0, .tv_nsec = 3'000'000};
        nanosleep(&pause, nullptr);
        REQUIRE(send_text(client.get(), command("hello")));
        const bool answered = soon([&] { return !silent(client.get()) || stage.slot(0).closed > closed; });
        kept = answered && stage.slot(0).closed == closed && read_answer(client.get()).text == "hello";
        // And gives it up when nothing more comes.
        CHECK((!kept || ends_cleanly(client.get())));
    }
    CHECK(kept);
}

TEST_CASE("who keeps a connection makes no room for another, and the other is closed") {
    Stage stage;
    stage.start_child(1);
    stage.control().keepalive_limit = 1;
    const UniqueFd first = stage.connect();
    CHECK(ask(first.get(), command("hello")) == "hello");
    CHECK((stage.becomes(0, ChildState::idle) || stage.becomes(1, ChildState::idle)));
    for (int i = 0; i < 5; ++i) {
        const UniqueFd second = stage.connect();
        CHECK(ask(second.get(), command("hello")) == "hello");
        CHECK(ask(first.get(), command("hello")) == "hello");
        CHECK(ends_cleanly(second.get()));
    }
    CHECK(silent(first.get()));
    CHECK(stage.slot(0).closed + stage.slot(1).closed == 5);
}

TEST_CASE("with a limit of none every connection is closed behind its answer") {
    Stage stage;
    stage.control().keepalive_limit = 0;
    for (int i = 0; i < 3; ++i) {
        const UniqueFd client = stage.connect();
        CHECK(ask(client.get(), command("hello")) == "hello");
        CHECK(ends_cleanly(client.get()));
    }
    CHECK(stage.slot(0).closed == 3);
}

TEST_CASE("a request may be cut in two at every byte") {
    Stage stage;
    stage.keep_parts();
    const std::string request = command("body", "", true, "some body");
    const UniqueFd client = stage.used_connection();
    for (std::size_t cut = 1; cut < request.size(); ++cut) {
        REQUIRE(send_text(client.get(), request.substr(0, cut)));
        REQUIRE(stage.becomes(0, cut < 8 ? ChildState::reading : stage.slot(0).state.load()));
        CHECK(ask(client.get(), request.substr(cut)) == "some body");
        REQUIRE(stage.becomes(0, ChildState::idle));
    }
}

TEST_CASE("requests that come together are all answered before the child is idle") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(stage.becomes(0, ChildState::idle));
    std::string requests;
    for (int i = 0; i < 5; ++i) {
        requests += command("serial");
    }
    stage.control().waiting = Waiting::pressure;
    REQUIRE(send_text(client.get(), requests));
    for (int i = 1; i <= 5; ++i) {
        const Answer answer = read_answer(client.get());
        CHECK(answer.text == std::to_string(i));
    }
    CHECK(soon([&] { return stage.slot(0).requests == 5; }));
}

TEST_CASE("a request and the beginning of the next one: answered, then not idle") {
    Stage stage;
    const std::string request = command("hello");
    const UniqueFd client = stage.connect();
    for (const std::size_t cut : {1U, 7U, 8U, 15U}) {
        CAPTURE(cut);
        CHECK(ask(client.get(), request + request.substr(0, cut)) == "hello");
        CHECK(stage.becomes(0, ChildState::reading));
        CHECK_FALSE(stage.tell_to_give_up(0));
        CHECK(ask(client.get(), request.substr(cut)) == "hello");
        CHECK(stage.becomes(0, ChildState::idle));
    }
}

TEST_CASE("an answer in three writes ends with the last of them") {
    Stage stage;
    const UniqueFd client = stage.used_connection();
    CHECK(ask(client.get(), command("split")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(soon([&] { return stage.slot(0).requests == 2; }));
    REQUIRE(stage.tell_to_give_up(0));
    CHECK(stage.hear_parked());
}

TEST_CASE("a child that is told while a signal interrupts it gives up all the same") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    StandIn::Options options;
    options.environment = {"HOST_GATE=" + gate.path};
    Stage stage{options};
    const UniqueFd client = stage.used_connection();
    // Asleep, so that the signal interrupts its waiting. The handler runs until the gate opens.
    REQUIRE(soon([&] { return stage.sleeps(stage.child); }));
    REQUIRE(::kill(stage.child, SIGUSR1) == 0);
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

TEST_CASE("a child that can not park because the supervisor is late waits until there is room") {
    Stage stage;
    const UniqueFd client = stage.used_connection();
    const int messages = stage.fill_parking();
    REQUIRE(messages > 0);
    REQUIRE(stage.tell_to_give_up(0));
    CHECK(soon([&] { return stage.sleeps(stage.child); }));
    CHECK(stage.slot(0).parked == 0);
    for (int i = 0; i < messages; ++i) {
        (void)stage.hear_parked();
    }
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).closed == 0);
    stage.hand_off(std::move(parked));
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a child that can not park for a second closes, unless there is a request, which it serves") {
    for (const bool asked : {false, true}) {
        CAPTURE(asked);
        Stage stage;
        const UniqueFd client = stage.used_connection();
        REQUIRE(stage.fill_parking() > 0);
        REQUIRE(stage.tell_to_give_up(0));
        if (asked) {
            CHECK(ask(client.get(), command("hello")) == "hello");
        } else {
            CHECK(ends_cleanly(client.get()));
            CHECK(stage.becomes(0, ChildState::free));
        }
        CHECK(stage.slot(0).parked == 0);
        CHECK(stage.slot(0).closed == (asked ? 0 : 1));
    }
}

TEST_CASE("a signal that interrupts a child while it waits changes nothing for its connection") {
    Stage stage;
    const UniqueFd client = stage.used_connection();
    for (int i = 0; i < 20; ++i) {
        REQUIRE(::kill(stage.child, SIGUSR1) == 0);
        CHECK(ask(client.get(), command("hello")) == "hello");
    }
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("a signal that comes while a new connection is silent does not lose it") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(::kill(stage.child, SIGUSR1) == 0);
    UniqueFd parked = stage.hear_parked();
    stage.hand_off(std::move(parked));
    CHECK(ask(client.get(), command("hello")) == "hello");
}
