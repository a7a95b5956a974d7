// SPDX-License-Identifier: Apache-2.0
// How children end: at once, in order, or because the supervisor is no more.
#include <functional>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/stand_in.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::ChildState;
using cede::children::RunMode;
using cede::children::Waiting;

namespace {

struct Stage : StandIn {
    Stage() {
        wait_until_ready();
        child = start_child();
    }
    void tell(RunMode mode) {
        control().mode = mode;
        ring(0);
    }
    // Lets a request for "wait" end.
    void open_gate() {
        CHECK(soon([&] { return gate.open(); }));
    }
    // The child runs a script until open_gate().
    UniqueFd busy_connection() {
        UniqueFd client = connect();
        CHECK(send_text(client.get(), command("wait", gate.path)));
        CHECK(becomes(0, ChildState::busy));
        return client;
    }

    TempDirectory directory;
    Gate gate{directory.path("gate")};
    pid_t child = 0;
};

using End = std::function<void(Stage&)>;

// The three ends that have in common that a running request is finished and nothing more is begun.
const std::pair<const char*, End> ends[] = {
    {"stop", [](Stage& stage) { stage.tell(RunMode::stop); }},
    {"drain", [](Stage& stage) { stage.tell(RunMode::drain); }},
    {"orphan", [](Stage& stage) { stage.close_channel(0); }},
};

}  // namespace

TEST_CASE("a free child ends when it is told to, or when the supervisor has gone") {
    for (const auto& [name, end] : ends) {
        CAPTURE(name);
        Stage stage;
        end(stage);
        CHECK(stage.exit_of(stage.child) == 0);
        CHECK(stage.slot(0).state == ChildState::exiting);
    }
}

TEST_CASE("a child that waits on a connection closes it and ends") {
    for (const auto& [name, end] : ends) {
        for (const bool used : {true, false}) {
            CAPTURE(name);
            CAPTURE(used);
            Stage stage;
            const UniqueFd client = stage.connect();
            if (used) {
                CHECK(ask(client.get(), command("hello")) == "hello");
            }
            REQUIRE(stage.becomes(0, ChildState::idle));
            end(stage);
            CHECK(ends_cleanly(client.get()));
            CHECK(stage.exit_of(stage.child) == 0);
        }
    }
}

TEST_CASE("a running request is answered before its child ends") {
    for (const auto& [name, end] : ends) {
        CAPTURE(name);
        Stage stage;
        const UniqueFd client = stage.busy_connection();
        end(stage);
        CHECK(stage.slot(0).state == ChildState::busy);
        stage.open_gate();
        CHECK(read_answer(client.get()).text == "waited");
        CHECK(ends_cleanly(client.get()));
        CHECK(stage.exit_of(stage.child) == 0);
    }
}

TEST_CASE("a request that has begun to come is answered before its child ends") {
    for (const auto& [name, end] : ends) {
        CAPTURE(name);
        Stage stage;
        stage.keep_parts();
        const std::string request = command("hello");
        const UniqueFd client = stage.connect();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(send_text(client.get(), request.substr(0, 20)));
        REQUIRE(stage.becomes(0, ChildState::reading));
        end(stage);
        CHECK(ask(client.get(), request.substr(20)) == "hello");
        CHECK(ends_cleanly(client.get()));
        CHECK(stage.exit_of(stage.child) == 0);
    }
}

TEST_CASE("a child that drains takes what waits in both queues, keeps nothing open, and ends") {
    Stage stage;
    const UniqueFd busy = stage.busy_connection();
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 10; ++i) {
        clients.push_back(stage.connect());
        REQUIRE(send_text(clients.back().get(), command("hello")));
        Ends handed = tcp_pair();
        REQUIRE(send_text(handed.theirs.get(), command("hello")));
        stage.hand_off(std::move(handed.ours));
        clients.push_back(std::move(handed.theirs));
    }
    stage.tell(RunMode::drain);
    stage.open_gate();
    CHECK(read_answer(busy.get()).text == "waited");
    for (const UniqueFd& client : clients) {
        CHECK(read_answer(client.get()).text == "hello");
        CHECK(ends_cleanly(client.get()));
    }
    CHECK(stage.exit_of(stage.child) == 0);
}

TEST_CASE("a child that stops takes nothing of what waits") {
    Stage stage;
    const UniqueFd busy = stage.busy_connection();
    const UniqueFd waiting = stage.connect();
    REQUIRE(send_text(waiting.get(), command("hello")));
    stage.tell(RunMode::stop);
    stage.open_gate();
    CHECK(read_answer(busy.get()).text == "waited");
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.waiting_in_listen_queue() == 1);
}

TEST_CASE("an orphan ends although connections never cease to come") {
    Stage stage;
    const UniqueFd busy = stage.busy_connection();
    stage.control().waiting = Waiting::pressure;
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 60; ++i) {
        clients.push_back(stage.connect());
        REQUIRE(send_text(clients.back().get(), command("hello", "", false)));
    }
    stage.close_channel(0);
    stage.open_gate();
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).accepted < 30);
}

TEST_CASE("an orphan ends although its web server never ceases to ask on the same connection") {
    Stage stage;
    const UniqueFd client = stage.connect();
    CHECK(ask(client.get(), command("hello")) == "hello");
    stage.close_channel(0);
    int answered = 0;
    while (answered < 1000 && ask(client.get(), command("hello")) == "hello") {
        ++answered;
    }
    CHECK(answered < 10);
    CHECK(stage.exit_of(stage.child) == 0);
}

TEST_CASE("the port is free when the last orphan has ended") {
    Stage stage;
    const SocketAddress address = stage.address();
    stage.close_listeners();
    stage.close_zygote_channel();
    CHECK(stage.exit_of(stage.pid()) == 0);
    stage.close_all_channels();
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(can_listen_at(address));
}

TEST_CASE("a child that has served its number of requests parks its connection and ends") {
    Stage stage;
    stage.slot(0).quota = 3;
    const UniqueFd client = stage.connect();
    for (int i = 1; i <= 3; ++i) {
        CHECK(ask(client.get(), command("serial")) == std::to_string(i));
    }
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).state == ChildState::exiting);
    CHECK(stage.slot(0).requests == 3);
    const pid_t other = stage.start_child(1);
    stage.hand_off(std::move(parked));
    CHECK(ask(client.get(), command("pid")).starts_with(std::to_string(other)));
}

TEST_CASE("a quota of requests holds over all connections of a child, and the next waits for another child") {
    Stage stage;
    stage.slot(0).quota = 3;
    for (int i = 1; i <= 3; ++i) {
        const UniqueFd client = stage.connect();
        CHECK(ask(client.get(), command("serial", "", false)) == std::to_string(i));
        CHECK(ends_cleanly(client.get()));
    }
    CHECK(stage.exit_of(stage.child) == 0);
    const UniqueFd client = stage.connect();
    stage.order(1);
    CHECK(ask(client.get(), command("serial")) == "1");
}
