// SPDX-License-Identifier: Apache-2.0
// Peers that are slow while PHP runs, or silent, have a limit of time.
#include <chrono>
#include <string>
#include <sys/socket.h>
#include <thread>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"

using namespace cede;
using namespace cede::tests;
using children::ChildSays;
using children::ChildState;
using children::Waiting;
using protocol::Outcome;
using std::chrono::milliseconds;

namespace {

constexpr std::uint32_t limit_ms = 200;

// The head and enough of a body for a child, without its end.
std::string begun_upload() {
    const std::string request = command("body", "", true, std::string(40000, 'b'));
    return request.substr(0, request.size() - 1000);
}

void check_ended(StandIn& stage, pid_t child) {
    const StandIn::Heard heard = stage.hear(0);
    CHECK(heard.says == ChildSays::refused);
    CHECK(heard.why == Outcome::body_too_slow);
    CHECK(stage.slot(0).bodies_timed_out.load() == 1);
    CHECK(stage.exit_of(child) == 0);
}

}  // namespace

TEST_CASE("a body that stands still ends its request with an answer, and the child") {
    Stage stage;
    stage.control().body_timeout_ms = limit_ms;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), begun_upload()));
    const Answer answer = read_answer(client.get());
    CHECK(answer.complete);
    CHECK(answer.text.starts_with("Status: 408 "));
    check_ended(stage, stage.child);
}

TEST_CASE("lsapi: the same") {
    lsapi::Stage stage;
    stage.control().body_timeout_ms = limit_ms;
    lsapi::Client client = stage.client();
    const std::string request = lsapi::command("body", "", std::string(40000, 'b'));
    REQUIRE(client.send(request.substr(0, request.size() - 1000)));
    const lsapi::Answer answer = client.read_answer();
    CHECK(answer.complete);
    CHECK(answer.status == 408);
    check_ended(stage, stage.child);
}

TEST_CASE("a body that goes on has all the time, unless a rate is asked for and others wait") {
    for (const bool rate : {false, true}) {
        CAPTURE(rate);
        Stage stage;
        stage.control().body_timeout_ms = limit_ms;
        stage.control().body_rate = rate ? 1'000'000 : 0;
        const UniqueFd client = stage.connect();
        const std::string request = command("body", "", true, std::string(40000, 'b'));
        const std::size_t begun = request.size() - 1000;
        REQUIRE(send_text(client.get(), request.substr(0, begun)));
        REQUIRE(stage.becomes(0, ChildState::busy));
        std::size_t sent = begun;
        for (; sent < begun + 30 && stage.slot(0).bodies_timed_out.load() == 0; ++sent) {
            REQUIRE(send_text(client.get(), request.substr(sent, 1)));
            std::this_thread::sleep_for(milliseconds{limit_ms / 10});
            if (sent == begun + 20) {
                stage.control().waiting = rate ? Waiting::pressure : Waiting::nobody;
            }
        }
        if (rate) {
            CHECK(read_answer(client.get()).text.starts_with("Status: 408 "));
            check_ended(stage, stage.child);
        } else {
            CHECK(ask(client.get(), request.substr(sent)) == std::string(40000, 'b'));
        }
    }
}

TEST_CASE("while others wait a body that stands still has a quarter of the time") {
    Stage stage;
    stage.control().body_timeout_ms = 20'000;
    const UniqueFd client = stage.connect();
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(send_text(client.get(), begun_upload()));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.control().waiting = Waiting::pressure;
    CHECK(read_answer(client.get()).text.starts_with("Status: 408 "));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{15});
}

TEST_CASE("a peer that does not read its answer loses it, and the child goes on") {
    for (const bool unix_sockets : {false, true}) {
        CAPTURE(unix_sockets);
        Stage stage{over(unix_sockets)};
        stage.control().write_timeout_ms = limit_ms;
        const UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), command("big", "20000000")));
        const StandIn::Heard heard = stage.hear(0);
        CHECK(heard.says == ChildSays::refused);
        CHECK(heard.why == Outcome::not_read);
        CHECK(stage.slot(0).writes_timed_out.load() >= 1);
        CHECK(stage.becomes(0, ChildState::free));
        const UniqueFd next = stage.connect();
        CHECK(ask(next.get(), command("hello")) == "hello");
    }
}

TEST_CASE("a peer that reads slowly gets all of it") {
    Stage stage;
    stage.control().write_timeout_ms = 5000;
    const UniqueFd client = stage.connect();
    const int small = 4096;
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    REQUIRE(send_text(client.get(), command("big", "3000000")));
    const Answer answer = read_answer(client.get());
    CHECK(answer.complete);
    CHECK(answer.text.size() >= 3000000);
    CHECK(stage.slot(0).writes_timed_out.load() == 0);
}

TEST_CASE("a new connection that stays silent is closed in its time, one that was used is not") {
    Stage stage;
    stage.control().first_byte_timeout_ms = limit_ms;
    const UniqueFd silent_one = stage.connect();
    CHECK(ends_cleanly(silent_one.get()));
    CHECK(stage.becomes(0, ChildState::free));
    const UniqueFd used = stage.used_connection();
    std::this_thread::sleep_for(milliseconds{2 * limit_ms});
    CHECK(ask(used.get(), command("hello")) == "hello");
}

TEST_CASE("how long a child waits for its peer to close is a setting") {
    Stage stage;
    stage.control().linger_timeout_ms = 0;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), begin_record(false) + record(4, pair("COMMAND", "early")) +
                                        record(4, "") + record(5, std::string(40000, 'b'))));
    CHECK(read_answer(client.get()).text == "hello");
    CHECK(stage.becomes(0, ChildState::free));
}
