// SPDX-License-Identifier: Apache-2.0
// Requests that a child does not run: whose peer has gone, who have waited too long, and probes.
#include <algorithm>
#include <csignal>
#include <numeric>
#include <string>
#include <sys/socket.h>
#include <thread>

#include <doctest/doctest.h>

#include "children/clock.h"
#include "tests/agent/client.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"

using namespace cede;
using namespace cede::tests;
using children::ChildState;

namespace {

constexpr std::uint64_t ns_in_ms = 1'000'000;

std::uint64_t waits_of(StandIn& stage) {
    const auto& waits = stage.slot(0).waits;
    return std::accumulate(std::begin(waits), std::end(waits), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& bucket) { return sum + bucket.load(); });
}

std::uint64_t ms_ago(std::uint64_t ms) {
    return children::monotonic_ns() - ms * ns_in_ms;
}

// What came before a child could look at it.
template <typename While>
void while_stopped(Stage& stage, While happens) {
    REQUIRE(stage.becomes(0, ChildState::free));
    REQUIRE(stage.stop(stage.child));
    happens();
    ::kill(stage.child, SIGCONT);
}

constexpr std::string_view refusal =
    "Status: 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n\r\nAll children are "
    "busy.\n";

}  // namespace

TEST_CASE("a request whose peer has gone before a child could take it is not run") {
    for (const bool unix_sockets : {false, true}) {
        for (const bool half : {false, true}) {
            CAPTURE(unix_sockets);
            CAPTURE(half);
            Stage stage{over(unix_sockets)};
            UniqueFd gone;
            UniqueFd good;
            while_stopped(stage, [&] {
                gone = stage.connect();
                REQUIRE(send_text(gone.get(), command("hello")));
                if (half) {
                    ::shutdown(gone.get(), SHUT_WR);
                } else {
                    gone.reset();
                }
                good = stage.connect();
                REQUIRE(send_text(good.get(), command("hello")));
            });
            CHECK(read_answer(good.get()).text == "hello");
            CHECK(stage.slot(0).abandoned.load() == 1);
            CHECK(stage.slot(0).begun.load() == 1);
        }
    }
}

TEST_CASE("the same of one that was handed over, and of one on a kept connection") {
    Stage stage;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello")));
    handed.theirs.reset();
    stage.hand_off(std::move(handed.ours));
    CHECK(soon([&] { return stage.slot(0).abandoned.load() == 1; }));
    REQUIRE(stage.becomes(0, ChildState::free));
    UniqueFd kept = stage.used_connection();
    REQUIRE(stage.stop(stage.child));
    REQUIRE(send_text(kept.get(), command("hello")));
    kept.reset();
    ::kill(stage.child, SIGCONT);
    CHECK(soon([&] { return stage.slot(0).abandoned.load() == 2; }));
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).begun.load() == 1);
}

TEST_CASE("a reset connection is no request") {
    Stage stage;
    while_stopped(stage, [&] {
        UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), command("hello")));
        const linger at_once{1, 0};
        ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    });
    CHECK(soon([&] { return stage.slot(0).abandoned.load() == 1; }));
    CHECK(stage.slot(0).begun.load() == 0);
}

TEST_CASE("a peer that closes its sending side on purpose is served if that is asked for") {
    Stage stage;
    stage.control().run_abandoned = 1;
    UniqueFd client;
    while_stopped(stage, [&] {
        client = stage.connect();
        REQUIRE(send_text(client.get(), command("hello")));
        ::shutdown(client.get(), SHUT_WR);
    });
    CHECK(read_answer(client.get()).text == "hello");
    CHECK(stage.slot(0).abandoned.load() == 0);
}

TEST_CASE("who connects and leaves without a word has not been abandoned") {
    Stage stage;
    for (int i = 0; i < 3; ++i) {
        (void)stage.connect();
    }
    CHECK(soon([&] { return stage.slot(0).accepted.load() == 3; }));
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).abandoned.load() == 0);
}

TEST_CASE("a request that has waited longer than allowed is refused, and its connection goes on") {
    Stage stage;
    stage.control().max_wait_ms = 500;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello")));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    const Answer answer = read_answer(handed.theirs.get());
    CHECK(answer.complete);
    CHECK(answer.text == refusal);
    CHECK(stage.slot(0).overdue.load() == 1);
    CHECK(stage.slot(0).begun.load() == 0);
    REQUIRE(stage.becomes(0, ChildState::idle));
    CHECK(ask(handed.theirs.get(), command("hello")) == "hello");
    CHECK(stage.slot(0).overdue.load() == 1);
}

TEST_CASE("one that has waited less is run, and its wait is on the books") {
    Stage stage;
    stage.control().max_wait_ms = 10'000;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello")));
    stage.hand_off(std::move(handed.ours), ms_ago(300));
    CHECK(read_answer(handed.theirs.get()).text == "hello");
    CHECK(ask(handed.theirs.get(), command("hello")) == "hello");
    const children::Slot& slot = stage.slot(0);
    CHECK(waits_of(stage) == 2);
    CHECK(slot.waits[0].load() == 1);  // the second has not waited
    CHECK(slot.longest_wait_us.load() >= 300'000);
    CHECK(slot.waited_us.load() == slot.longest_wait_us.load());
}

TEST_CASE("the wait in the listen queue counts; the supervisor's samples are no ground to refuse anybody") {
    for (const bool unix_sockets : {false, true}) {
        CAPTURE(unix_sockets);
        Stage stage{over(unix_sockets)};
        stage.control().max_wait_ms = 50;
        UniqueFd client;
        while_stopped(stage, [&] {
            client = stage.connect();
            REQUIRE(send_text(client.get(), command("hello")));
            stage.control().listen_wait_ms = 100;
            std::this_thread::sleep_for(std::chrono::milliseconds{100});
        });
        CHECK(read_answer(client.get()).text == (unix_sockets ? "hello" : refusal));
        CHECK(stage.slot(0).overdue.load() == (unix_sockets ? 0 : 1));
        CHECK(stage.slot(0).longest_wait_us.load() == (unix_sockets ? 100'000 : 0));
    }
}

TEST_CASE("a refused connection that is not kept ends behind the answer") {
    Stage stage;
    stage.control().max_wait_ms = 500;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello", "", false)));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    CHECK(read_answer(handed.theirs.get()).text == refusal);
    CHECK(ends_cleanly(handed.theirs.get()));
    CHECK(stage.becomes(0, ChildState::free));
}

TEST_CASE("a refused upload is left to the supervisor, which reads what is still sent") {
    Stage stage;
    stage.control().max_wait_ms = 500;
    Ends handed = tcp_pair();
    const std::string request = command("hello", "", true, std::string(50000, 'b'));
    REQUIRE(send_text(handed.theirs.get(), request.substr(0, request.size() - 100)));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    CHECK(read_answer(handed.theirs.get()).text == refusal);
    const UniqueFd lingering = stage.hear_lingering();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(send_text(handed.theirs.get(), request.substr(request.size() - 100)));
    CHECK(silent(handed.theirs.get()));
}

TEST_CASE("a connection on which a probe was answered is not new any more") {
    Stage stage;
    stage.set_ping_path("/ping");
    stage.control().first_byte_timeout_ms = 200;
    const UniqueFd client = stage.connect();
    const std::string probe = request(pair("SCRIPT_NAME", "/ping") + pair("COMMAND", "hello"));
    CHECK(ask(client.get(), probe).ends_with("pong"));
    std::this_thread::sleep_for(std::chrono::milliseconds{400});
    CHECK(ask(client.get(), probe).ends_with("pong"));
}

TEST_CASE("requests that come together are refused together") {
    Stage stage;
    stage.control().max_wait_ms = 500;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello") + command("hello")));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    CHECK(read_answer(handed.theirs.get()).text == refusal);
    CHECK(read_answer(handed.theirs.get()).complete);
}

TEST_CASE("a probe is answered without PHP, however long it has waited") {
    Stage stage;
    stage.set_ping_path("/ping");
    stage.control().max_wait_ms = 500;
    const std::string probe = request(pair("SCRIPT_NAME", "/ping") + pair("COMMAND", "hello"));
    const std::string pong =
        "Status: 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-cache, no-store, "
        "must-revalidate\r\n\r\npong";
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), probe));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    CHECK(read_answer(handed.theirs.get()).text == pong);
    CHECK(ask(handed.theirs.get(), probe) == pong);
    CHECK(stage.slot(0).pings.load() == 2);
    CHECK(stage.slot(0).begun.load() == 0);
    for (const char* other : {"/ping/", "/pin", "/PING", "ping", ""}) {
        CAPTURE(other);
        CHECK(ask(handed.theirs.get(), request(pair("SCRIPT_NAME", other) + pair("COMMAND", "hello"))) ==
              "hello");
    }
    CHECK(stage.slot(0).pings.load() == 2);
}

TEST_CASE("lsapi: refused, probed and dropped in the protocol's own words") {
    lsapi::Stage stage;
    stage.control().max_wait_ms = 500;
    Ends handed = tcp_pair();
    lsapi::Client client{std::move(handed.theirs)};
    REQUIRE(client.send(lsapi::command("hello")));
    stage.hand_off(std::move(handed.ours), ms_ago(600));
    const lsapi::Answer answer = client.read_answer();
    CHECK(answer.complete);
    CHECK(answer.status == 503);
    CHECK(answer.text == "All children are busy.\n");
    CHECK(stage.slot(0).overdue.load() == 1);
    CHECK(client.ask(lsapi::command("hello")) == "hello");
    Ends gone = tcp_pair();
    REQUIRE(send_text(gone.theirs.get(), lsapi::command("hello")));
    gone.theirs.reset();
    REQUIRE(stage.becomes(0, ChildState::idle));
    CHECK(stage.tell_to_give_up(0));
    (void)stage.hear_parked();
    stage.hand_off(std::move(gone.ours), ms_ago(1));
    CHECK(soon([&] { return stage.slot(0).abandoned.load() == 1; }));
}

TEST_CASE("a child kept for new connections takes no other, and keeps none") {
    StandIn stage;
    stage.wait_until_ready();
    stage.start_reserved_child();
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello")));
    stage.hand_off(std::move(handed.ours));
    const UniqueFd probe = stage.connect();
    CHECK(ask(probe.get(), command("hello")) == "hello");
    CHECK(stage.hear_parked());
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(silent(handed.theirs.get()));
    CHECK(stage.slot(0).taken.load() == 0);
    stage.order(1);
    CHECK(read_answer(handed.theirs.get()).text == "hello");
}

TEST_CASE("what the web server says about when it got a request counts") {
    Stage stage;
    stage.set_queue_start("REQUEST_START");
    stage.control().max_wait_ms = 1000;
    const auto at = [&](const std::string& start) {
        return request(pair("COMMAND", "hello") + pair("REQUEST_START", start));
    };
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const UniqueFd client = stage.connect();
    for (const std::string& unit : {std::string{""}, std::string{"000"}, std::string{"000000"}}) {
        CAPTURE(unit);
        CHECK(ask(client.get(), at("t=" + std::to_string(now.tv_sec - 5) + unit)) == refusal);
        CHECK(ask(client.get(), at(std::to_string(now.tv_sec - 5) + unit + ".25")) == refusal);
        CHECK(ask(client.get(), at(std::to_string(now.tv_sec) + unit)) == "hello");
    }
    // Of no use: no time, of another machine's clock, of long ago.
    for (const std::string& start :
         {std::string{""}, std::string{"soon"}, std::string{"12 "}, std::string{"1e9"}, std::string(30, '9'),
          std::to_string(now.tv_sec + 100), std::string{"1.2.3"}, std::string{"1000000000"}}) {
        CAPTURE(start);
        CHECK(ask(client.get(), at(start)) == "hello");
    }
}
