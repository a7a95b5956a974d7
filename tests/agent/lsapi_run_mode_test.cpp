// SPDX-License-Identifier: Apache-2.0
// LSAPI: how children end: at once, in order, because the supervisor is no more, or because they have served
// enough.
#include <csignal>
#include <functional>

#include <doctest/doctest.h>

#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;
using cede::children::RunMode;
using cede::children::Waiting;

namespace {

struct EndStage : Stage {
    void tell(RunMode mode) {
        control().mode = mode;
        ring(0);
    }
    // The child runs a script until open_gate().
    Client busy_client() {
        Client busy = client();
        CHECK(busy.send(command("wait", gate.path)));
        CHECK(becomes(0, ChildState::busy));
        return busy;
    }
    void open_gate() {
        CHECK(soon([&] { return gate.open(); }));
    }

    TempDirectory directory;
    Gate gate{directory.path("gate")};
};

struct End {
    std::string name;
    bool in_order;  // what has begun is served
    std::function<void(EndStage&)> begin;
};
const End ends[] = {
    {"stop", false, [](EndStage& stage) { stage.tell(RunMode::stop); }},
    {"drain", true, [](EndStage& stage) { stage.tell(RunMode::drain); }},
    {"orphan", false, [](EndStage& stage) { stage.close_channel(0); }},
};

// Told to close or not: the connection ends, and the supervisor has not been given it.
bool is_let_go(EndStage& stage, Client& client) {
    if (soon([&] { return !client.silent(); }) && client.holds("LS")) {
        CHECK(client.told_to_close());
    }
    return client.ends() && !stage.has_parked();
}

}  // namespace

TEST_CASE("lsapi: a free child ends when it is told to, or when the supervisor has gone") {
    for (const End& end : ends) {
        CAPTURE(end.name);
        EndStage stage;
        end.begin(stage);
        CHECK(stage.exit_of(stage.child) == 0);
        CHECK(stage.slot(0).state == ChildState::exiting);
    }
}

TEST_CASE("lsapi: a child that waits on a connection closes it and ends") {
    for (const End& end : ends) {
        for (const bool used : {true, false}) {
            CAPTURE(end.name);
            CAPTURE(used);
            EndStage stage;
            Client client = used ? stage.used_client() : stage.client();
            REQUIRE(stage.becomes(0, ChildState::idle));
            end.begin(stage);
            CHECK(is_let_go(stage, client));
            CHECK(stage.exit_of(stage.child) == 0);
        }
    }
}

TEST_CASE("lsapi: a running request is answered before its child ends") {
    for (const End& end : ends) {
        CAPTURE(end.name);
        EndStage stage;
        Client client = stage.busy_client();
        end.begin(stage);
        CHECK(stage.slot(0).state == ChildState::busy);
        stage.open_gate();
        CHECK(client.read_answer().text == "waited");
        CHECK(is_let_go(stage, client));
        CHECK(stage.exit_of(stage.child) == 0);
    }
}

TEST_CASE("lsapi: a request of which a part has come is waited for in a drain only, and else not begun") {
    for (const End& end : ends) {
        for (const bool used : {true, false}) {
            CAPTURE(end.name);
            CAPTURE(used);
            EndStage stage;
            stage.keep_parts();
            const std::string request = command("hello");
            Client client = used ? stage.used_client() : stage.client();
            REQUIRE(client.send(std::string_view{request}.substr(0, 20)));
            REQUIRE(stage.becomes(0, ChildState::reading));
            end.begin(stage);
            if (end.in_order) {
                CHECK(client.ask(std::string_view{request}.substr(20)) == "hello");
            }
            CHECK(is_let_go(stage, client));
            CHECK(stage.exit_of(stage.child) == 0);
            CHECK(stage.slot(0).requests == (used ? 1U : 0U) + (end.in_order ? 1U : 0U));
            CHECK(stage.slot(0).refused == 0);
        }
    }
}

TEST_CASE("lsapi: a request whose body has begun to come is answered before its child ends") {
    for (const End& end : ends) {
        CAPTURE(end.name);
        EndStage stage;
        stage.keep_parts();
        const std::string request = command("body", "", "some body");
        Client client = stage.used_client();
        REQUIRE(client.send(std::string_view{request}.substr(0, request.size() - 4)));
        REQUIRE(stage.becomes(0, ChildState::busy));
        end.begin(stage);
        CHECK(client.ask(std::string_view{request}.substr(request.size() - 4)) == "some body");
        CHECK(is_let_go(stage, client));
        CHECK(stage.exit_of(stage.child) == 0);
    }
}

TEST_CASE("lsapi: a child that drains takes what waits in both queues, keeps nothing open, and ends") {
    EndStage stage;
    Client busy = stage.busy_client();
    std::vector<Client> clients;
    for (int i = 0; i < 10; ++i) {
        clients.emplace_back(stage.connect());
        REQUIRE(clients.back().send(command("hello")));
        Ends handed = tcp_pair();
        stage.hand_off(std::move(handed.ours));
        clients.emplace_back(std::move(handed.theirs));
        REQUIRE(clients.back().send(command("hello")));
    }
    stage.tell(RunMode::drain);
    stage.open_gate();
    CHECK(busy.read_answer().text == "waited");
    CHECK(is_let_go(stage, busy));
    for (Client& client : clients) {
        CHECK(client.read_answer().text == "hello");
        CHECK(is_let_go(stage, client));
    }
    CHECK(stage.exit_of(stage.child) == 0);
}

TEST_CASE("lsapi: in a drain a request that crosses is served where it is still seen") {
    EndStage stage;
    Client client = stage.busy_client();
    stage.tell(RunMode::drain);
    REQUIRE(client.send(command("hello")));
    stage.open_gate();
    CHECK(client.read_answer().text == "waited");
    CHECK(client.read_answer().text == "hello");
    CHECK(is_let_go(stage, client));
    CHECK(stage.exit_of(stage.child) == 0);
}

TEST_CASE("lsapi: a child that stops takes nothing of what waits") {
    EndStage stage;
    Client busy = stage.busy_client();
    Client waiting = stage.client();
    REQUIRE(waiting.send(command("hello")));
    stage.tell(RunMode::stop);
    stage.open_gate();
    CHECK(busy.read_answer().text == "waited");
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.waiting_in_listen_queue() == 1);
}

TEST_CASE("lsapi: an orphan ends although its web server never ceases to ask on the same connection") {
    EndStage stage;
    Client client = stage.used_client();
    stage.close_channel(0);
    int answered = 0;
    while (answered < 1000 && client.ask(command("hello")) == "hello") {
        ++answered;
    }
    CHECK(answered < 10);
    CHECK(stage.exit_of(stage.child) == 0);
}

TEST_CASE("lsapi: the port is free when the last orphan has ended") {
    EndStage stage;
    const SocketAddress address = stage.address();
    stage.close_listeners();
    stage.close_zygote_channel();
    CHECK(stage.exit_of(stage.pid()) == 0);
    stage.close_all_channels();
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(can_listen_at(address));
}

TEST_CASE("lsapi: a child that has served its number of requests parks its connection and ends") {
    EndStage stage;
    stage.slot(0).quota = 3;
    Client client = stage.client();
    for (int i = 1; i <= 3; ++i) {
        CHECK(client.ask(command("serial")) == std::to_string(i));
    }
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).state == ChildState::exiting);
    CHECK(stage.slot(0).requests == 3);
    CHECK(stage.slot(0).parked == 1);
    CHECK(client.silent());
    const pid_t other = stage.start_child(1);
    stage.hand_off(std::move(parked));
    CHECK(client.ask(command("pid")).starts_with(std::to_string(other)));
    CHECK(stage.becomes(1, ChildState::idle));
}

TEST_CASE("lsapi: a quota holds over all connections of a child, and the next waits for another child") {
    EndStage stage;
    stage.slot(0).quota = 3;
    for (int i = 1; i <= 3; ++i) {
        Client client = stage.client();
        CHECK(client.ask(i == 3 ? command("finish") : command("serial")) ==
              (i == 3 ? "hello" : std::to_string(i)));
        if (i < 3) {
            client.close();
            CHECK(stage.becomes(0, ChildState::free));
        }
    }
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).requests == 3);
    Client client = stage.client();
    stage.order(1);
    CHECK(client.ask(command("serial")) == "1");
}

TEST_CASE("lsapi: under pressure a quota is kept as well, and a refused request is not counted") {
    EndStage stage;
    stage.slot(0).quota = 2;
    Client garbled = stage.client();
    REQUIRE(garbled.send("no packet at all"));
    CHECK(garbled.ends());
    REQUIRE(stage.becomes(0, ChildState::free));
    stage.control().waiting = Waiting::pressure;
    for (int i = 1; i <= 2; ++i) {
        // Asked before it is taken: a silent one would be parked at once.
        REQUIRE(stage.stop(stage.child));
        Client client = stage.client();
        REQUIRE(client.send(command("serial")));
        ::kill(stage.child, SIGCONT);
        CHECK(client.read_answer().text == std::to_string(i));
        stage.hear_parked().reset();
    }
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).requests == 2);
    CHECK(stage.slot(0).refused == 1);
}
