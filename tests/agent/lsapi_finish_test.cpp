// SPDX-License-Identifier: Apache-2.0
// LSAPI: scripts that end their answer and go on, as litespeed_finish_request() does.
#include <csignal>

#include <doctest/doctest.h>

#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;
using cede::children::GiveUpBy;
using cede::children::RunMode;
using cede::children::Waiting;

namespace {

struct FinishStage : Stage {
    TempDirectory directory;
    Gate gate{directory.path("gate")};
    // The script has answered and goes on until the gate opens.
    Client finished_client() {
        Client client = used_client();
        CHECK(client.ask(command("finish", gate.path)) == "hello");
        return client;
    }
    void open_gate() {
        CHECK(soon([&] { return gate.open(); }));
    }
};

}  // namespace

TEST_CASE("lsapi: a child is finishing until its script ends, although the answer has ended before") {
    FinishStage stage;
    Client client = stage.finished_client();
    CHECK(client.told_to_close());
    const UniqueFd seen_off = stage.hear_seen_off();
    CHECK(soon([&] { return stage.slot(0).requests == 2; }));
    CHECK(stage.becomes(0, ChildState::finishing));
    CHECK_FALSE(stage.tell_to_give_up(0));
    CHECK(client.silent());
    const UniqueFd waiting = stage.connect();
    stage.ring(0);
    CHECK(stage.waiting_in_listen_queue() == 1);
    CHECK(stage.becomes(0, ChildState::finishing));
    stage.open_gate();
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).accepted == 2);
    CHECK(stage.slot(0).requests == 2);
    CHECK(client.silent());
}

TEST_CASE("lsapi: a request that crosses the early end is answered by another child, while the script runs") {
    FinishStage stage;
    Client client = stage.finished_client();
    UniqueFd seen_off = stage.hear_seen_off();
    REQUIRE(client.send(command("pid")));
    const pid_t other = stage.start_child(1);
    stage.hand_off(std::move(seen_off));
    const Answer answer = client.read_answer();
    CHECK(answer.told_to_close);
    CHECK(answer.text.starts_with(std::to_string(other)));
    CHECK(stage.becomes(0, ChildState::finishing));
    stage.open_gate();
    CHECK(stage.becomes(0, ChildState::free));
}

TEST_CASE("lsapi: what a script does with the number of the connection that it has ended is its own affair") {
    FinishStage stage;
    Client client = stage.finished_client();
    stage.open_gate();
    REQUIRE(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).requests == 2);
    CHECK_FALSE(stage.has_spoken(0));
    Client next = stage.client();
    CHECK(next.ask(command("ran-on")) ==
          "same 1\nwritev 16\nselect 1\nread 16\nwrite 16\nselect 1\nread 16\nclose 0\n");
}

TEST_CASE("lsapi: an early end closes by itself where the supervisor takes no connection") {
    for (const bool willing : {true, false}) {
        CAPTURE(willing);
        FinishStage stage;
        Client client = stage.used_client();
        if (willing) {
            REQUIRE(stage.fill_parking() > 0);
        } else {
            stage.control().give_up_by = GiveUpBy::closing_even_new;
        }
        REQUIRE(client.send(command("finish", stage.gate.path)));
        CHECK(client.read_answer().text == "hello");
        CHECK(client.told_to_close());
        CHECK(client.ends());
        CHECK(stage.becomes(0, ChildState::finishing));
        stage.open_gate();
        CHECK(stage.becomes(0, ChildState::free));
    }
}

TEST_CASE("lsapi: a connection whose request was not read to its end is never handed to anybody") {
    for (const std::string_view body : {"", "some"}) {
        CAPTURE(body);
        FinishStage stage;
        stage.keep_parts();
        Client client = stage.used_client();
        CHECK(client.ask(bytes_of(
                  {.name = "finish", .argument = stage.gate.path, .body = body, .body_length = 9})) ==
              "hello");
        CHECK(client.told_to_close());
        CHECK(client.ends());
        CHECK_FALSE(stage.has_parked());
        CHECK(stage.becomes(0, ChildState::finishing));
        stage.open_gate();
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(stage.slot(0).refused == 0);
    }
}

TEST_CASE("lsapi: pressure and doorbells mean nothing to a script that goes on") {
    FinishStage stage;
    Client client = stage.finished_client();
    const UniqueFd seen_off = stage.hear_seen_off();
    stage.control().waiting = Waiting::pressure;
    stage.ring(0);
    stage.open_gate();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK_FALSE(stage.has_parked());
    CHECK(stage.slot(0).parked == 0);
}

TEST_CASE("lsapi: a child that is to end waits for a script that goes on") {
    for (const RunMode mode : {RunMode::stop, RunMode::drain}) {
        CAPTURE(static_cast<int>(mode));
        FinishStage stage;
        Client client = stage.finished_client();
        const UniqueFd seen_off = stage.hear_seen_off();
        stage.control().mode = mode;
        stage.ring(0);
        CHECK(stage.becomes(0, ChildState::finishing));
        stage.open_gate();
        CHECK(stage.exit_of(stage.child) == 0);
    }
}

TEST_CASE("lsapi: a child that ends its answers early serves one connection after the other") {
    Stage stage;
    for (std::uint64_t i = 1; i <= 50; ++i) {
        Client client = stage.client();
        REQUIRE(client.ask(command("finish")) == "hello");
        REQUIRE(client.told_to_close());
        stage.hear_seen_off().reset();
        REQUIRE(client.ends());
        REQUIRE(stage.becomes(0, ChildState::free));
        REQUIRE(stage.slot(0).requests == i);
    }
}
