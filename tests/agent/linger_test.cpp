// SPDX-License-Identifier: Apache-2.0
// The end of a connection without keep-alive: no waiting for the peer, and no answer cut off.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <thread>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"

using namespace cede::tests;
using cede::children::ChildState;
using cede::children::Waiting;

namespace {

// A request without keep-alive whose program answers before it has read the body, of which `sent` bytes come.
std::string early_request(std::size_t sent) {
    return begin_record(false) + record(4, pair("COMMAND", "early")) + record(4, "") +
           record(5, std::string(sent, 'b'));
}

}  // namespace

TEST_CASE("a child does not wait until a peer that has said everything closes") {
    Stage stage;
    std::vector<UniqueFd> clients;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) {
        clients.push_back(stage.connect());
        CHECK(ask(clients.back().get(), command("hello", "", false)) == "hello");
        CHECK(ends_cleanly(clients.back().get()));
        CHECK(stage.becomes(0, ChildState::free));
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{10});
}

TEST_CASE("a peer that still sends its body gets the whole answer, and then the end, not a reset") {
    Stage stage;
    for (int i = 0; i < 10; ++i) {
        const UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), early_request(50000)));
        REQUIRE(send_text(client.get(), record(5, std::string(50000, 'c'))));
        CHECK(read_answer(client.get()).text == "hello");
        CHECK(ends_cleanly(client.get()));
        REQUIRE(send_text(client.get(), record(5, std::string(1000, 'd'))));
        ::shutdown(client.get(), SHUT_WR);
        CHECK(stage.becomes(0, ChildState::free));
    }
}

TEST_CASE("a child that waits for the end of a body leaves after a second") {
    Stage stage;
    stage.keep_parts();
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), early_request(100)));
    CHECK(read_answer(client.get()).text == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(ends_cleanly(client.get()));
    CHECK(stage.becomes(0, ChildState::free));
}

TEST_CASE("a child that waits for the end of a body leaves at once for somebody who waits") {
    Stage stage;
    stage.keep_parts();
    for (const bool told : {true, false}) {
        CAPTURE(told);
        const UniqueFd client = stage.connect();
        const auto start = std::chrono::steady_clock::now();
        if (!told) {
            stage.control().waiting = Waiting::attention;
        }
        REQUIRE(send_text(client.get(), early_request(100)));
        CHECK(read_answer(client.get()).text == "hello");
        if (told) {
            REQUIRE(stage.becomes(0, ChildState::idle));
            REQUIRE(stage.tell_to_give_up(0));
        }
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds{900});
        CHECK(stage.slot(0).parked == 0);
        stage.control().waiting = Waiting::nobody;
    }
}

TEST_CASE("a peer that never ceases to send holds a child for no more than a second or two") {
    for (const bool unix_sockets : {true, false}) {
        CAPTURE(unix_sockets);
        StandIn::Options options;
        options.unix_sockets = unix_sockets;
        Stage stage{options};
        const UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), early_request(100)));
        std::atomic<bool> done{false};
        const auto flood = [&] {
            const std::string more = record(5, std::string(65000, 'f'));
            while (!done) {
                pollfd watched{client.get(), POLLOUT, 0};
                ::poll(&watched, 1, 10);
                if (::send(client.get(), more.data(), more.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
                    errno != EAGAIN) {
                    return;
                }
            }
        };
        std::thread senders[] = {std::thread{flood}, std::thread{flood}};
        const bool free =
            soon([&] { return stage.slot(0).state == ChildState::free; }, std::chrono::seconds{4});
        done = true;
        for (std::thread& sender : senders) {
            sender.join();
        }
        CHECK(free);
    }
}

TEST_CASE("an orphan that waits for the end of a body ends") {
    Stage stage;
    stage.keep_parts();
    const UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), early_request(100)));
    CHECK(read_answer(client.get()).text == "hello");
    REQUIRE(stage.becomes(0, ChildState::idle));
    stage.close_channel(0);
    CHECK(stage.exit_of(stage.child) == 0);
}
