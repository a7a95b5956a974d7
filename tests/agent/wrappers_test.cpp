// SPDX-License-Identifier: Apache-2.0
// What the wrapped functions return and which errno they leave: as libc, for everything that is not the
// agent's.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::ChildState;

namespace {

// What the host program's --calls or --fault says without any agent.
std::string by_libc(const char* what) {
    int status = -1;
    std::string text = run_program({host_path(), what}, {}, status);
    REQUIRE(status == 0);
    REQUIRE(text.find("errno") != std::string::npos);
    return text;
}

std::string preloaded(const char* what) {
    int status = -1;
    std::string text = run_program({host_path(), what}, {"LD_PRELOAD=" + agent_path()}, status);
    CHECK(status == 0);
    return text;
}

std::string in_child(const char* what) {
    Stage stage;
    const UniqueFd client = stage.connect();
    return ask(client.get(), command(what));
}

std::string in_lsapi_child(const char* what) {
    lsapi::Stage stage;
    lsapi::Client client = stage.client();
    return client.ask(lsapi::command(what));
}

}  // namespace

TEST_CASE("calls that are none of the agent's business come out as from libc") {
    const std::string expected = by_libc("--calls");
    SUBCASE("in a program that cede has not started") {
        CHECK(preloaded("--calls") == expected);
    }
    SUBCASE("in a child with a connection") {
        CHECK(in_child("calls") == expected);
    }
    SUBCASE("in an LSAPI child with a connection") {
        CHECK(in_lsapi_child("calls") == expected);
    }
}

TEST_CASE("calls while the program starts come out as from libc") {
    StandIn::Options options;
    const TempDirectory directory;
    const std::string file = directory.path("calls");
    options.command = {"/bin/sh", "-c", "exec " + host_path() + " --calls > " + file};
    StandIn stand_in{options};
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
    std::ifstream stream{file};
    CHECK(std::string{std::istreambuf_iterator<char>{stream}, {}} == by_libc("--calls"));
}

TEST_CASE("poll with a pointer that leads nowhere is refused as libc refuses it") {
    const std::string expected = by_libc("--fault");
    SUBCASE("in a program that cede has not started") {
        CHECK(preloaded("--fault") == expected);
    }
    SUBCASE("in a child with a connection") {
        CHECK(in_child("fault") == expected);
    }
    SUBCASE("in an LSAPI child with a connection") {
        CHECK(in_lsapi_child("fault") == expected);
    }
}

TEST_CASE("bodies arrive as they were sent, however they are cut into records and writes") {
    Stage stage;
    stage.keep_parts();
    std::mt19937 random{11};
    const UniqueFd client = stage.connect();
    for (const std::size_t size :
         {0U, 1U, 8U, 8191U, 8192U, 8193U, 32767U, 32768U, 32769U, 100000U, 1000000U}) {
        CAPTURE(size);
        std::string body(size, '\0');
        for (char& byte : body) {
            byte = static_cast<char>(random());
        }
        std::string message = begin_record(true) + record(4, pair("COMMAND", "body"), 3) + record(4, "");
        for (std::size_t at = 0; at < size;) {
            const std::size_t part = std::min<std::size_t>(size - at, 1 + random() % 65000);
            message += record(5, std::string_view{body}.substr(at, part), random() % 256);
            at += part;
        }
        message += record(5, "");
        // Sent and received at once: neither side may fill up.
        std::thread sender{[&] {
            std::size_t at = 0;
            while (at < message.size()) {
                const std::size_t part = std::min<std::size_t>(message.size() - at, 1 + at * 7919 % 50000);
                pollfd watched{client.get(), POLLOUT, 0};
                ::poll(&watched, 1, 5000);
                const ssize_t sent =
                    ::send(client.get(), message.data() + at, part, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (sent < 0 && errno != EAGAIN) {
                    return;
                }
                at += sent > 0 ? static_cast<std::size_t>(sent) : 0;
            }
        }};
        const Answer answer = read_answer(client.get());
        sender.join();
        REQUIRE(answer.complete);
        CHECK((answer.text == body));
        CHECK(stage.becomes(0, ChildState::idle));
    }
}

TEST_CASE("a large answer arrives whole, and ends once") {
    Stage stage;
    const UniqueFd client = stage.connect();
    for (const std::size_t size : {0U, 65527U, 65528U, 65529U, 3000000U}) {
        const std::string text = ask(client.get(), command("big", std::to_string(size)));
        CHECK(text.size() == size);
        CHECK((size == 0 || text.back() == static_cast<char>('0' + (size - 1) % 10)));
        CHECK(stage.becomes(0, ChildState::idle));
    }
    CHECK(soon([&] { return stage.slot(0).requests == 5; }));
}

TEST_CASE("a peer that leaves in the middle costs its child nothing but this connection") {
    Stage stage;
    stage.keep_parts();
    for (const std::size_t cut : {1U, 8U, 20U, 45U}) {
        UniqueFd client = stage.connect();
        REQUIRE(send_text(client.get(), command("hello").substr(0, cut)));
        REQUIRE(stage.becomes(0, ChildState::reading));
        client.reset();
        CHECK(stage.becomes(0, ChildState::free));
    }
    // In the middle of its answer.
    UniqueFd client = stage.connect();
    REQUIRE(send_text(client.get(), command("big", "9000000")));
    CHECK(soon([&] { return !silent(client.get()); }));
    client.reset();
    CHECK(stage.becomes(0, ChildState::free));
    const UniqueFd next = stage.connect();
    CHECK(ask(next.get(), command("pid")).starts_with(std::to_string(stage.child)));
}

TEST_CASE("records that are none close their connection and harm nobody") {
    Stage stage;
    std::mt19937 random{3};
    for (int i = 0; i < 60; ++i) {
        UniqueFd client = stage.connect();
        std::string garbage(1 + random() % 600, '\0');
        for (char& byte : garbage) {
            byte = static_cast<char>(random() % 3 == 0 ? random() % 256 : random() % 7);
        }
        REQUIRE(send_text(client.get(), garbage));
        ::shutdown(client.get(), SHUT_WR);
        CHECK(stage.becomes(0, ChildState::free));
    }
    const UniqueFd next = stage.connect();
    CHECK(ask(next.get(), command("pid")).starts_with(std::to_string(stage.child)));
}

TEST_CASE("what sigaction says is what the kernel has, whoever set it and however often it is asked") {
    Stage stage;
    const UniqueFd client = stage.connect();
    // Twice on the same connection: what was remembered in the first request must be right in the second.
    for (int i = 0; i < 2; ++i) {
        const std::string text = ask(client.get(), command("dispositions"));
        CHECK(text.find("DIFFERS") == std::string::npos);
        CHECK(text.find("LOST") == std::string::npos);
        CHECK(text.find("default same\ndefault same\nwrong number -1\n") != std::string::npos);
        CHECK(std::ranges::count(text, '\n') == 29);
    }
}
