// SPDX-License-Identifier: Apache-2.0
// The end of a request that has run for too long, as the web server sees it.
#include <chrono>
#include <csignal>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"
#include "tests/support/temp_directory.h"

using namespace cede;
using namespace cede::tests;
using children::ChildState;

namespace {

constexpr std::string_view page =
    "Status: 504 Gateway Timeout\r\nContent-Type: text/plain\r\n\r\nThe request took too long and was "
    "ended.\n";

// All that comes until the stream ends; "(no end)" if it does not.
std::string everything(int fd) {
    std::string received;
    char buffer[1024];
    const bool ended = soon([&] {
        const ssize_t size = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        received.append(buffer, static_cast<std::size_t>(size > 0 ? size : 0));
        return size == 0;
    });
    return ended ? received : "(no end)";
}

// It ended by itself and said so.
bool has_left(StandIn& stage, pid_t child) {
    return stage.exit_of(child) == 0 && stage.slot(0).state.load() == ChildState::exiting;
}

}  // namespace

TEST_CASE("a request that has not begun to answer is ended with a complete answer") {
    for (const char* how : {"spin", "wait"}) {
        CAPTURE(how);
        const TempDirectory folder;
        const Gate gate{folder.path("gate")};
        Stage stage;
        const UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), command(how, gate.path)));
        REQUIRE(stage.becomes(0, ChildState::busy));
        stage.tell_to_end_request(stage.child, 1);
        const Answer answer = read_answer(client.get());
        CHECK(answer.complete);
        CHECK(answer.text == page);
        CHECK(ends_cleanly(client.get()));
        CHECK(has_left(stage, stage.child));
    }
}

TEST_CASE("that answer has the number of its request, and comes on a kept connection, too") {
    Stage stage;
    const UniqueFd client = stage.used_connection();
    const std::string content = pair("COMMAND", "spin");
    REQUIRE(send_text(client.get(), record(1, std::string("\0\1\1\0\0\0\0\0", 8), 0, 258) +
                                        record(4, content, 0, 258) + record(4, "", 0, 258) +
                                        record(5, "", 0, 258)));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 2);
    const std::string received = everything(client.get());
    CHECK(received ==
          record(6, page, 0, 258) + record(6, "", 0, 258) + record(3, std::string(8, '\0'), 0, 258));
    CHECK(has_left(stage, stage.child));
}

TEST_CASE("an answer that has begun is cut off, and nothing makes it look complete") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("begin", "a part")));
    REQUIRE(soon([&] { return !silent(client.get()); }));
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
    CHECK(everything(client.get()) == "a part");
}

TEST_CASE("a line for the web server's log is no beginning of an answer") {
    for (const bool behind_output : {false, true}) {
        CAPTURE(behind_output);
        const TempDirectory folder;
        const Gate gate{folder.path("gate")};
        Stage stage;
        const UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), command(behind_output ? "wait-log-behind" : "wait-log", gate.path)));
        REQUIRE(soon([&] { return !silent(client.get()) && StandIn::sleeps(stage.child); }));
        stage.tell_to_end_request(stage.child, 1);
        const Answer answer = read_answer(client.get());
        CHECK(answer.complete != behind_output);
        CHECK(answer.text == (behind_output ? "aa line" : "a line" + std::string{page}));
        CHECK(has_left(stage, stage.child));
    }
}

TEST_CASE("a request that came behind another one is ended as any other") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("hello") + command("wait", gate.path)));
    CHECK(read_answer(client.get()).text == "hello");
    REQUIRE(soon([&] { return stage.slot(0).begun.load() == 2; }));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 2);
    const Answer answer = read_answer(client.get());
    CHECK(answer.complete);
    CHECK(answer.text == page);
    CHECK(has_left(stage, stage.child));
}

TEST_CASE("with a part of the next request behind it a request runs, and is ended without an answer") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string next = record(1, std::string("\0\1\1\0\0\0\0\0", 8), 0, 258);
    REQUIRE(send_text(client.get(), command("wait", gate.path) + next));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
    std::string received;
    char byte = 0;
    while (::recv(client.get(), &byte, 1, 0) > 0) {
        received += byte;
    }
    CHECK(received.empty());
}

TEST_CASE("an answer that does not fit is none") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("big", "9000000")));
    REQUIRE(soon([&] { return !silent(client.get()) && StandIn::sleeps(stage.child); }));
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
    const Answer answer = read_answer(client.get());
    CHECK(answer.closed);
    CHECK(answer.text.size() < 9000000);
}

TEST_CASE("what the peer still sends of its request does not reset the answer") {
    Stage stage;
    const UniqueFd client = stage.connect();
    // The program waits for the rest of a body of which it has read nothing yet.
    REQUIRE(send_text(client.get(), begin_record(true) + record(4, pair("COMMAND", "spin-early")) +
                                        record(4, "") + record(5, std::string(60000, 'b'))));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 1);
    // In the middle of sending, as far as the peer knows.
    for (int i = 0; i < 8; ++i) {
        CHECK(send_text(client.get(), record(5, std::string(60000, 'b'))));
    }
    CHECK(send_text(client.get(), record(5, "")));
    const Answer answer = read_answer(client.get());
    CHECK(answer.complete);
    CHECK(answer.text == page);
    CHECK(has_left(stage, stage.child));
}

TEST_CASE("a child whose program has not read all that came of its request does not wait for more") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("spin-early", {}, true, "a body")));
    REQUIRE(stage.becomes(0, ChildState::busy));
    const auto start = std::chrono::steady_clock::now();
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds{900});
    CHECK(read_answer(client.get()).text == page);
}

TEST_CASE("only the request that is meant is ended") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    const UniqueFd client = stage.used_connection();
    stage.tell_to_end_request(stage.child, 1);  // the one before
    stage.tell_to_end_request(stage.child, 2);  // the next, which has not begun
    CHECK(ask(client.get(), command("hello")) == "hello");
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(send_text(client.get(), command("wait", gate.path)));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 2);
    CHECK(soon([&] { return gate.open(); }));
    CHECK(read_answer(client.get()).text == "waited");
    CHECK(stage.becomes(0, ChildState::idle));
}

TEST_CASE("a request whose client has left is one that was begun, and the next is another one") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    UniqueFd left = stage.connect();
    REQUIRE(send_text(left.get(), command("big", "9000000")));
    REQUIRE(soon([&] { return !silent(left.get()) && StandIn::sleeps(stage.child); }));
    left.reset();
    REQUIRE(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).requests.load() == 0);
    CHECK(stage.slot(0).begun.load() == 1);
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("wait", gate.path)));
    REQUIRE(stage.becomes(0, ChildState::busy));
    CHECK(stage.slot(0).begun.load() == 2);
    stage.tell_to_end_request(stage.child, 1);
    CHECK(soon([&] { return gate.open(); }));
    CHECK(read_answer(client.get()).text == "waited");
}

TEST_CASE("a child begins no more requests than its quota, whether or not they are answered") {
    Stage stage;
    stage.slot(0).quota.store(2);
    CHECK(ask(stage.connect().get(), command("hello")) == "hello");
    UniqueFd left = stage.connect();
    REQUIRE(send_text(left.get(), command("big", "9000000")));
    REQUIRE(soon([&] { return !silent(left.get()) && StandIn::sleeps(stage.child); }));
    left.reset();
    CHECK(stage.exit_of(stage.child).has_value());
    CHECK(stage.slot(0).begun.load() == 2);
}

TEST_CASE("a script that blocks all signals is not ended by this one") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("block", gate.path)));
    UniqueFd held;
    REQUIRE(soon([&] { return static_cast<bool>(held = gate.hold()); }));
    stage.tell_to_end_request(stage.child, 1);
    held.reset();
    CHECK(read_answer(client.get()).text == "went on");
}

TEST_CASE("the signal has its default effect when somebody else sends it") {
    Stage stage;
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("kill", std::to_string(children::overtime_signal))));
    const auto status = stage.exit_of(stage.child);
    REQUIRE(status.has_value());
    CHECK(WIFSIGNALED(*status));
    CHECK(WTERMSIG(*status) == children::overtime_signal);
    CHECK(read_answer(client.get()).closed);
}

TEST_CASE("a program finds no trace of the handler, and its own counts") {
    Stage stage;
    const UniqueFd client = stage.connect();
    for (int i = 0; i < 2; ++i) {
        CHECK(ask(client.get(), command("hidden-signal")) ==
              "sigaction default 0\nkernel UNKNOWN\nsignal default\nsigaction first\nkernel first\n"
              "signal first\nsignal default\nsigaction default 0\nsigaction first\nrestarts 1\ncopy 0\n");
    }
    CHECK(ask(client.get(), command("popen", "grep SigCgt /proc/self/status")).find("2") ==
          std::string::npos);
    // And it is there again once the program has gone back to the default.
    REQUIRE(stage.becomes(0, ChildState::idle));
    REQUIRE(send_text(client.get(), command("spin")));
    REQUIRE(stage.becomes(0, ChildState::busy));
    stage.tell_to_end_request(stage.child, 4);
    CHECK(read_answer(client.get()).text == page);
}

TEST_CASE("lsapi: a request that has not begun to answer is ended with a complete answer") {
    for (const char* how : {"spin", "wait"}) {
        CAPTURE(how);
        const TempDirectory folder;
        const Gate gate{folder.path("gate")};
        lsapi::Stage stage;
        lsapi::Client client = stage.used_client();
        REQUIRE(client.send(lsapi::command(how, gate.path)));
        REQUIRE(soon([&] { return client.holds(std::string("LS\7")); }));
        stage.tell_to_end_request(stage.child, 2);
        const lsapi::Answer answer = client.read_answer();
        CHECK(answer.complete);
        CHECK(answer.status == 504);
        CHECK(answer.text == "The request took too long and was ended.\n");
        CHECK(client.ends());
        CHECK(has_left(stage, stage.child));
    }
}

TEST_CASE("lsapi: a line for the web server's log is no beginning of an answer") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    lsapi::Stage stage;
    lsapi::Client client = stage.client();
    REQUIRE(client.send(lsapi::command("wait-log", gate.path)));
    REQUIRE(soon([&] { return client.holds("a line") && StandIn::sleeps(stage.child); }));
    stage.tell_to_end_request(stage.child, 1);
    const lsapi::Answer answer = client.read_answer();
    CHECK(answer.complete);
    CHECK(answer.status == 504);
    CHECK(has_left(stage, stage.child));
}

TEST_CASE("lsapi: an answer that has begun is cut off") {
    lsapi::Stage stage;
    lsapi::Client client = stage.client();
    REQUIRE(client.send(lsapi::command("begin", "a part")));
    REQUIRE(soon([&] { return client.holds("a part"); }));
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
    CHECK(everything(client.fd()).empty());
}

TEST_CASE("lsapi: a script that goes on behind its answer is ended") {
    const TempDirectory folder;
    const Gate gate{folder.path("gate")};
    lsapi::Stage stage;
    lsapi::Client client = stage.client();
    CHECK(client.ask(lsapi::command("finish", gate.path)) == "hello");
    REQUIRE(stage.becomes(0, ChildState::finishing));
    REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
    stage.tell_to_end_request(stage.child, 1);
    CHECK(has_left(stage, stage.child));
}
