// SPDX-License-Identifier: Apache-2.0
// The head of a request has a time in which it must be complete (--read-timeout).
#include <chrono>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <thread>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/packets.h"
#include "tests/support/records.h"
#include "tests/support/temp_directory.h"

using namespace cede;
using namespace cede::tests;
using children::ChildSays;
using children::ChildState;
using protocol::Outcome;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t limit_ms = 200;

// The stream has ended, orderly or not.
bool is_closed(int fd) {
    char byte = 0;
    const ssize_t size = ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return size == 0 || (size < 0 && errno != EAGAIN);
}

// Sends a byte at a time, each well within the limit, until the connection is closed or there are no more.
// How many were sent.
std::size_t trickle(int fd, const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size() && !is_closed(fd) && send_text(fd, bytes.substr(sent, 1))) {
        ++sent;
        std::this_thread::sleep_for(milliseconds{5});
    }
    return sent;
}

void check_refused(StandIn& stage) {
    const StandIn::Heard heard = stage.hear(0);
    CHECK(heard.says == ChildSays::refused);
    CHECK(heard.why == Outcome::too_slow);
    CHECK(stage.slot(0).timed_out.load() == 1);
    CHECK(stage.becomes(0, ChildState::free));
}

// A head in which an argument takes the most room.
std::string long_head() {
    return begin_record(true) +
           record(4, pair("COMMAND", "hello") + pair("ARGUMENT", std::string(500, 'a'))) + record(4, "");
}

}  // namespace

TEST_CASE("a head that stops in the middle costs its connection, and the child is free again") {
    const std::string head = long_head();
    for (const std::size_t cut : {std::size_t{1}, std::size_t{8}, std::size_t{16}, std::size_t{24},
                                  std::size_t{300}, head.size() - 8, head.size() - 1}) {
        CAPTURE(cut);
        Stage stage;
        stage.keep_parts();
        stage.control().read_timeout_ms = limit_ms;
        UniqueFd client = stage.connect();
        const auto start = Clock::now();
        REQUIRE(send_text(client.get(), head.substr(0, cut)));
        check_refused(stage);
        CHECK(Clock::now() - start >= milliseconds{limit_ms});
        CHECK(soon([&] { return is_closed(client.get()); }));
        const UniqueFd next = stage.connect();
        CHECK(ask(next.get(), command("hello")) == "hello");
    }
}

TEST_CASE("the time is for the whole head, not for each byte of it") {
    Stage stage;
    stage.keep_parts();
    stage.control().read_timeout_ms = limit_ms;
    const UniqueFd client = stage.used_connection();
    const std::string head = long_head();
    CHECK(trickle(client.get(), head) < head.size());
    check_refused(stage);
}

TEST_CASE("a head that comes in time is served, however long its body and its script then take") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    stage.keep_parts();
    stage.control().read_timeout_ms = limit_ms;
    const UniqueFd client = stage.connect();
    for (int i = 0; i < 2; ++i) {
        const std::string request = command("body", {}, true, "a body");
        const std::size_t body = request.find("a body");
        for (std::size_t at = 0; at < body; at += 7) {
            REQUIRE(send_text(client.get(),
                              std::string_view{request}.substr(at, std::min<std::size_t>(7, body - at))));
        }
        REQUIRE(stage.becomes(0, ChildState::busy));
        std::this_thread::sleep_for(milliseconds{2 * limit_ms});
        REQUIRE(send_text(client.get(), std::string_view{request}.substr(body)));
        CHECK(read_answer(client.get()).text == "a body");
    }
    CHECK(stage.slot(0).timed_out.load() == 0);
    CHECK_FALSE(stage.has_spoken(0));
}

TEST_CASE("a head that begins to arrive together with the one before has its own time") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    stage.keep_parts();
    stage.control().read_timeout_ms = limit_ms;
    const UniqueFd client = stage.connect();
    const std::string first = command("wait", gate.path);
    const std::string second = command("hello");
    REQUIRE(send_text(client.get(), first.substr(0, 30)));
    REQUIRE(stage.becomes(0, ChildState::reading));
    REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
    REQUIRE(send_text(client.get(), first.substr(30) + second.substr(0, 30)));
    REQUIRE(stage.becomes(0, ChildState::busy));
    std::this_thread::sleep_for(milliseconds{2 * limit_ms});
    REQUIRE(soon([&] { return gate.open(); }));
    CHECK(read_answer(client.get()).text == "waited");
    CHECK(send_text(client.get(), second.substr(30)));
    CHECK(read_answer(client.get()).text == "hello");
    CHECK(stage.slot(0).timed_out.load() == 0);
}

TEST_CASE("a connection without a byte of a request has all the time") {
    Stage stage;
    stage.control().read_timeout_ms = limit_ms / 4;
    const UniqueFd fresh = stage.connect();
    REQUIRE(stage.becomes(0, ChildState::idle));
    std::this_thread::sleep_for(milliseconds{limit_ms});
    CHECK(ask(fresh.get(), command("hello")) == "hello");
    std::this_thread::sleep_for(milliseconds{limit_ms});
    CHECK(ask(fresh.get(), command("hello")) == "hello");
}

TEST_CASE("without a limit a head has all the time, and a limit that comes later is for the next one") {
    Stage stage;
    stage.keep_parts();
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), long_head().substr(0, 30)));
    REQUIRE(stage.becomes(0, ChildState::reading));
    REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
    stage.control().read_timeout_ms = limit_ms;
    std::this_thread::sleep_for(milliseconds{2 * limit_ms});
    CHECK_FALSE(stage.has_spoken(0));
    REQUIRE(send_text(client.get(), long_head().substr(30, 1)));
    check_refused(stage);  // it looks at the clock now
}

TEST_CASE("lsapi: a head that stops in the middle costs its connection, and the child is free again") {
    const std::string request = lsapi::command("hello");
    for (const std::size_t cut : {std::size_t{1}, std::size_t{8}, request.size() / 2, request.size() - 1}) {
        CAPTURE(cut);
        lsapi::Stage stage;
        stage.keep_parts();
        stage.control().read_timeout_ms = limit_ms;
        lsapi::Client client = stage.client();
        REQUIRE(client.send(request.substr(0, cut)));
        check_refused(stage);
        CHECK(soon([&] { return is_closed(client.fd()); }));
        CHECK(stage.client().ask(request) == "hello");
    }
}

TEST_CASE("lsapi: the time is for the whole head, and on a kept connection, too") {
    lsapi::Stage stage;
    stage.keep_parts();
    stage.control().read_timeout_ms = limit_ms;
    lsapi::Client client = stage.used_client();
    const std::string request = lsapi::command("hello", std::string(500, 'a'));
    CHECK(trickle(client.fd(), request) < request.size());
    check_refused(stage);
}

TEST_CASE("lsapi: a head in time is served, a body has all the time, and so has a silent connection") {
    lsapi::Stage stage;
    stage.keep_parts();
    stage.control().read_timeout_ms = limit_ms;
    lsapi::Client client = stage.client();
    REQUIRE(stage.becomes(0, ChildState::idle));
    std::this_thread::sleep_for(milliseconds{2 * limit_ms});
    for (int i = 0; i < 2; ++i) {
        const std::string request = lsapi::command("body", {}, "a body");
        for (std::size_t at = 0; at < request.size() - 6; ++at) {
            REQUIRE(client.send(request.substr(at, 1)));
        }
        REQUIRE(stage.becomes(0, ChildState::busy));
        std::this_thread::sleep_for(milliseconds{2 * limit_ms});
        REQUIRE(client.send("a body"));
        CHECK(client.read_answer().text == "a body");
    }
    CHECK(stage.slot(0).timed_out.load() == 0);
    CHECK_FALSE(stage.has_spoken(0));
}
