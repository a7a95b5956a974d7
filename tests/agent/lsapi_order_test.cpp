// SPDX-License-Identifier: Apache-2.0
// LSAPI: one request after the other, and where a child is idle between them.
#include <doctest/doctest.h>

#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/packets.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;
using cede::children::Waiting;

TEST_CASE("lsapi: a peer that says nothing more behind its request gets its answer") {
    Stage stage;
    stage.control().run_abandoned = 1;
    Client client = stage.client();
    REQUIRE(client.send(command("body", "", "some body") + command("hello")));
    ::shutdown(client.fd(), SHUT_WR);
    CHECK(client.read_answer().text == "some body");
    CHECK(client.read_answer().text == "hello");
    CHECK(client.ends());
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).requests == 2);
}

TEST_CASE("lsapi: requests that come together are all answered before the child is idle") {
    Stage stage;
    Client client = stage.client();
    REQUIRE(stage.becomes(0, ChildState::idle));
    std::string requests;
    for (int i = 0; i < 5; ++i) {
        requests += command("serial");
    }
    stage.control().waiting = Waiting::pressure;
    REQUIRE(client.send(requests));
    for (int i = 1; i <= 5; ++i) {
        CHECK(client.read_answer().text == std::to_string(i));
    }
    CHECK(stage.hear_parked());
    CHECK(stage.slot(0).requests == 5);
}

TEST_CASE("lsapi: a second request before the end of the answer waits for its turn") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    Stage stage;
    Client client = stage.client();
    REQUIRE(client.send(command("wait", gate.path)));
    REQUIRE(stage.becomes(0, ChildState::busy));
    REQUIRE(client.send(command("body", "", "some body") + command("serial")));
    CHECK(soon([&] { return gate.open(); }));
    CHECK(client.read_answer().text == "waited");
    CHECK(client.read_answer().text == "some body");
    CHECK(client.read_answer().text == "3");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).requests == 3);
    CHECK(stage.slot(0).refused == 0);
}

TEST_CASE("lsapi: a child is idle once its answer has ended, and not before") {
    Stage stage;
    stage.keep_parts();
    Client client = stage.client();
    // Its program answers before it has read the body, and ends the answer behind that.
    const std::string request = command("early", "", "some body");
    REQUIRE(client.send(std::string_view{request}.substr(0, request.size() - 4)));
    CHECK(soon([&] { return client.holds("hello"); }));
    CHECK(stage.slot(0).state == ChildState::busy);
    CHECK(stage.slot(0).requests == 0);
    CHECK_FALSE(stage.tell_to_give_up(0));
    CHECK(client.ask(std::string_view{request}.substr(request.size() - 4)) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).requests == 1);
    CHECK(client.ask(command("split")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).requests == 2);
    REQUIRE(client.send(command("log", "a line for the log")));
    const Answer answer = client.read_answer();
    CHECK(answer.log == "a line for the log");
    CHECK(answer.text == "hello");
}

TEST_CASE("lsapi: a large answer arrives whole, and ends once") {
    Stage stage;
    Client client = stage.client();
    for (const std::size_t size : {0U, 8191U, 8192U, 16384U, 65536U, 65537U, 3000000U}) {
        const std::string text = client.ask(command("big", std::to_string(size)));
        CHECK(text.size() == size);
        CHECK((size == 0 || text.back() == static_cast<char>('0' + (size - 1) % 10)));
        CHECK(stage.becomes(0, ChildState::idle));
    }
    CHECK(stage.slot(0).requests == 7);
}

TEST_CASE("lsapi: a request that was given up between two answers is dropped, and nobody hears of it") {
    const std::string abort = packet(2);
    Stage stage;
    Client client = stage.client();
    REQUIRE(client.send(abort));
    CHECK(client.ask(command("hello")) == "hello");
    for (std::size_t cut = 0; cut < abort.size(); ++cut) {
        CAPTURE(cut);
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(client.send(std::string_view{abort}.substr(0, cut)));
        REQUIRE(stage.becomes(0, cut == 0 ? ChildState::idle : ChildState::reading));
        REQUIRE(client.send(std::string_view{abort}.substr(cut)));
        REQUIRE(stage.becomes(0, ChildState::idle));
    }
    CHECK(client.silent());
    // Together with the next one, and while its answer is on its way.
    CHECK(client.ask(abort + abort + command("hello") + abort) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    const std::string last = command("trace");
    CHECK(reads(client.ask(last)) ==
          std::vector<std::size_t>{command("hello").size(), command("hello").size(), last.size()});
    // As a web server does it: it closes behind.
    REQUIRE(client.send(abort));
    client.close();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).refused == 0);
    CHECK_FALSE(stage.has_spoken(0));
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("lsapi: a connection on which something was dropped can be given up like any other") {
    Stage stage;
    stage.keep_parts();
    Client client = stage.used_client();
    REQUIRE(client.send(packet(2).substr(0, 5)));
    REQUIRE(stage.becomes(0, ChildState::reading));
    CHECK_FALSE(stage.tell_to_give_up(0));
    REQUIRE(client.send(packet(2).substr(5)));
    REQUIRE(stage.becomes(0, ChildState::idle));
    stage.control().give_up_by = cede::children::GiveUpBy::parking;
    REQUIRE(stage.tell_to_give_up(0));
    UniqueFd parked = stage.hear_parked();
    CHECK(stage.becomes(0, ChildState::free));
    stage.hand_off(std::move(parked));
    CHECK(client.ask(command("hello")) == "hello");
}

TEST_CASE("lsapi: a body that ends too early is the script's affair, and the child's next one is another") {
    Stage stage;
    stage.control().run_abandoned = 1;
    Client client = stage.client();
    REQUIRE(client.send(bytes_of({.name = "body", .body = "some", .body_length = 9})));
    ::shutdown(client.fd(), SHUT_WR);
    CHECK(client.read_answer().text == "some");
    CHECK(client.ends());
    CHECK(stage.becomes(0, ChildState::free));
    Client next = stage.client();
    CHECK(next.ask(command("pid")).starts_with(std::to_string(stage.child)));
}

TEST_CASE("lsapi: a peer that leaves in the middle costs its child nothing but this connection") {
    Stage stage;
    stage.keep_parts();
    for (const std::size_t cut : {1U, 7U, 8U, 44U, 300U}) {
        Client client = stage.client();
        REQUIRE(client.send(std::string_view{command("hello")}.substr(0, cut)));
        REQUIRE(stage.becomes(0, ChildState::reading));
        client.close();
        CHECK(stage.becomes(0, ChildState::free));
    }
    // In the middle of its answer.
    Client client = stage.client();
    REQUIRE(client.send(command("big", "9000000")));
    CHECK(soon([&] { return client.holds("0123456789"); }));
    client.close();
    CHECK(stage.becomes(0, ChildState::free));
    Client next = stage.client();
    CHECK(next.ask(command("pid")).starts_with(std::to_string(stage.child)));
}
