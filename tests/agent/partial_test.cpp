// SPDX-License-Identifier: Apache-2.0
// Who sends a request slowly holds no child: the supervisor gets the connection, with everything still in it.
#include <csignal>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"

using namespace cede;
using namespace cede::tests;
using children::ChildState;
using children::GiveUpBy;
using children::RunMode;

namespace {

std::size_t unread(int fd) {
    std::string bytes(65536, '\0');
    const ssize_t size = ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
}

// The supervisor waits for the rest and hands the connection over.
void check_comes_back_whole(StandIn& stage, UniqueFd parked, std::size_t sent) {
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(soon([&] { return unread(parked.get()) == sent; }));
    CHECK(stage.slot(0).begun.load() == 0);
    stage.hand_off(std::move(parked));
}

}  // namespace

TEST_CASE("a part of a request is given away unread, wherever it ends, and served when it is whole") {
    const std::string whole = request(pair("COMMAND", "body") + pair("CONTENT_LENGTH", "9"), "some body");
    for (std::size_t cut = 1; cut < whole.size() - 8; cut += 1 + cut / 16) {
        for (const bool unix_sockets : {false, true}) {
            CAPTURE(cut);
            CAPTURE(unix_sockets);
            Stage stage{over(unix_sockets)};
            const UniqueFd client = stage.connect();
            REQUIRE(send_text(client.get(), whole.substr(0, cut)));
            UniqueFd parked = stage.hear_partial();
            REQUIRE(send_text(client.get(), whole.substr(cut)));
            check_comes_back_whole(stage, std::move(parked), whole.size());
            CHECK(read_answer(client.get()).text == "some body");
        }
    }
}

TEST_CASE("lsapi: a part of a request is given away unread and served when it is whole") {
    const std::string request = lsapi::command("body", "", "some body");
    for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{100},
                                  request.size() - 10, request.size() - 9, request.size() - 1}) {
        CAPTURE(cut);
        lsapi::Stage stage;
        lsapi::Client client = stage.client();
        REQUIRE(client.send(request.substr(0, cut)));
        UniqueFd parked = stage.hear_partial();
        REQUIRE(client.send(request.substr(cut)));
        check_comes_back_whole(stage, std::move(parked), request.size());
        CHECK(client.read_answer().text == "some body");
    }
}

TEST_CASE("a kept connection, too, is given away when the next request on it comes in part") {
    Stage stage;
    const UniqueFd client = stage.used_connection();
    REQUIRE(send_text(client.get(), command("hello").substr(0, 20)));
    UniqueFd parked = stage.hear_partial();
    REQUIRE(send_text(client.get(), command("hello").substr(20)));
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(soon([&] { return unread(parked.get()) == command("hello").size(); }));
    stage.hand_off(std::move(parked));
    CHECK(read_answer(client.get()).text == "hello");
}

TEST_CASE("a child is free again at once, however many send slowly") {
    Stage stage;
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 20; ++i) {
        clients.push_back(stage.connect());
        REQUIRE(send_text(clients.back().get(), command("hello").substr(0, 1)));
    }
    const UniqueFd good = stage.connect();
    CHECK(ask(good.get(), command("hello")) == "hello");
    for (int i = 0; i < 20; ++i) {
        (void)stage.hear_partial();
    }
}

TEST_CASE("a large body is begun when there is enough of it") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string body(40000, 'b');
    const std::string request = command("body", "", true, body);
    REQUIRE(send_text(client.get(), request.substr(0, request.size() - 100)));
    CHECK(stage.becomes(0, ChildState::busy));
    REQUIRE(send_text(client.get(), request.substr(request.size() - 100)));
    CHECK(read_answer(client.get()).text == body);
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("a head that is larger than what is looked at is left to PHP") {
    Stage stage;
    const UniqueFd client = stage.connect();
    std::string params = pair("COMMAND", "hello");
    params += pair("FILLING", std::string(80000, 'f'));
    std::string request = begin_record(true);
    for (std::size_t at = 0; at < params.size(); at += 60000) {
        request += record(4, params.substr(at, 60000));
    }
    request += record(4, "") + record(5, "");
    std::size_t sent = 0;
    CHECK(soon([&] {
        const ssize_t size =
            ::send(client.get(), request.data() + sent, request.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += size > 0 ? static_cast<std::size_t>(size) : 0;
        return sent == request.size();
    }));
    CHECK(read_answer(client.get()).complete);
}

TEST_CASE("who leaves in the middle of a request costs nothing but the look") {
    for (const bool half : {false, true}) {
        CAPTURE(half);
        Stage stage;
        UniqueFd client = stage.connect();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(stage.stop(stage.child));
        REQUIRE(send_text(client.get(), command("hello").substr(0, 20)));
        if (half) {
            ::shutdown(client.get(), SHUT_WR);
        } else {
            client.reset();
        }
        ::kill(stage.child, SIGCONT);
        CHECK(stage.becomes(0, ChildState::free));
        CHECK_FALSE(stage.has_parked());
        CHECK(stage.slot(0).begun.load() == 0);
    }
}

TEST_CASE("where nobody can be given a part of a request, the child waits for the rest itself") {
    for (const bool drain : {false, true}) {
        CAPTURE(drain);
        Stage stage;
        const UniqueFd client = stage.connect();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(stage.stop(stage.child));
        REQUIRE(send_text(client.get(), command("hello").substr(0, 20)));
        stage.control().mode = drain ? RunMode::drain : RunMode::serve;
        stage.control().give_up_by = drain ? GiveUpBy::parking : GiveUpBy::closing_even_new;
        ::kill(stage.child, SIGCONT);
        CHECK(stage.becomes(0, ChildState::reading));
        CHECK_FALSE(stage.has_parked());
        CHECK(ask(client.get(), command("hello").substr(20)) == "hello");
    }
}

TEST_CASE("what the supervisor hands over as it is stays with the child, and is not judged by its wait") {
    Stage stage;
    stage.control().max_wait_ms = 1000;
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello").substr(0, 20)));
    stage.hand_off(std::move(handed.ours), 1, true);
    CHECK(stage.becomes(0, ChildState::reading));
    CHECK(ask(handed.theirs.get(), command("hello").substr(20)) == "hello");
    CHECK_FALSE(stage.has_parked());
    CHECK(ask(handed.theirs.get(), command("hello")) == "hello");
    CHECK(stage.slot(0).overdue.load() == 0);
}

TEST_CASE("the end of a body that comes behind its answer is dropped, and makes no part of a request") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string head = begin_record(true) + record(4, pair("COMMAND", "early")) + record(4, "");
    for (int i = 0; i < 3; ++i) {
        REQUIRE(send_text(client.get(), head));  // no body is announced: it can be run
        CHECK(read_answer(client.get()).text == "hello");
        REQUIRE(send_text(client.get(), record(5, "")));
    }
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("a body of the announced length is whole without the record that ends it") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const auto part = [](std::string_view body) {
        return begin_record(true) + record(4, pair("COMMAND", "hello") + pair("CONTENT_LENGTH", "9")) +
               record(4, "") + record(5, body);
    };
    REQUIRE(send_text(client.get(), part("some body")));
    CHECK(stage.becomes(0, ChildState::busy));
    REQUIRE(send_text(client.get(), record(5, "")));
    CHECK(read_answer(client.get()).text == "hello");
    REQUIRE(send_text(client.get(), part("some bod")));
    CHECK(stage.hear_partial());
}
