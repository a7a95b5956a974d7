// SPDX-License-Identifier: Apache-2.0
// LSAPI: the child gets whole requests, and never a byte of the next one.
#include <algorithm>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/packets.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;

namespace {

// A request whose head is exactly so long, to be answered with this head.
std::string head_of_size(std::size_t size) {
    Command command{.name = "head"};
    const std::string filling(size, 'f');
    // Its parts stand at multiples of 8; what is missing then comes in front of the request line.
    command.filling = std::string_view{filling}.substr(0, (size - bytes_of(command).size()) / 8 * 8);
    command.layout.leading_zeros += size - bytes_of(command).size();
    return bytes_of(command);
}

std::string random_text(std::size_t size, unsigned seed) {
    std::mt19937 random{seed};
    std::string text(size, '\0');
    std::ranges::generate(text, [&] { return static_cast<char>(random()); });
    return text;
}

}  // namespace

TEST_CASE("lsapi: a request that comes in two pieces reaches the program in one, wherever it was cut") {
    StandIn::Options options;
    options.unix_sockets = true;  // TCP delays the second of two small pieces
    Stage stage{options};
    stage.keep_parts();
    const std::string request = command("serial");
    Client client = stage.client();
    CHECK(client.ask(command("trace")) != "");
    for (std::size_t cut = 1; cut < request.size(); ++cut) {
        CAPTURE(cut);
        REQUIRE(client.send(std::string_view{request}.substr(0, cut)));
        REQUIRE(stage.becomes(0, ChildState::reading));
        REQUIRE(client.ask(std::string_view{request}.substr(cut)) == std::to_string(cut + 1));
        REQUIRE(stage.becomes(0, ChildState::idle));
    }
    const std::string last = command("trace");
    auto sizes = reads(client.ask(last));
    REQUIRE(sizes.size() == request.size());
    CHECK(sizes.back() == last.size());
    sizes.pop_back();
    CHECK(std::ranges::count(sizes, request.size()) == static_cast<std::ptrdiff_t>(sizes.size()));
    CHECK(stage.slot(0).refused == 0);
}

TEST_CASE("lsapi: a new connection may begin with any number of bytes") {
    Stage stage;
    stage.keep_parts();
    const std::string request = command("trace");
    for (const std::size_t cut : {1U, 2U, 7U, 8U, 9U, 43U, 44U, 200U}) {
        CAPTURE(cut);
        Client client = stage.client();
        REQUIRE(client.send(std::string_view{request}.substr(0, cut)));
        REQUIRE(stage.becomes(0, ChildState::reading));
        const std::string trace = client.ask(std::string_view{request}.substr(cut));
        CHECK(reads(trace).back() == request.size());
        CHECK(trace.find("garbled") == std::string::npos);
        client.close();
        CHECK(stage.becomes(0, ChildState::free));
    }
    CHECK(stage.slot(0).refused == 0);
}

TEST_CASE("lsapi: a request may come byte by byte, its body too") {
    Stage stage;
    stage.keep_parts();
    const std::string request = command("body", "", "some body");
    Client client = stage.client();
    for (const char& byte : request) {
        REQUIRE(client.send({&byte, 1}));
    }
    CHECK(client.read_answer().text == "some body");
    CHECK(stage.becomes(0, ChildState::idle));
}

TEST_CASE("lsapi: a body may be cut anywhere, and the child is busy as soon as the head is complete") {
    Stage stage;
    stage.keep_parts();
    const std::string request = command("body", "", "some body");
    Client client = stage.client();
    for (std::size_t cut = request.size() - 9; cut < request.size(); ++cut) {
        CAPTURE(cut);
        REQUIRE(client.send(std::string_view{request}.substr(0, cut)));
        REQUIRE(stage.becomes(0, ChildState::busy));
        CHECK(client.ask(std::string_view{request}.substr(cut)) == "some body");
        CHECK(stage.becomes(0, ChildState::idle));
    }
}

TEST_CASE("lsapi: heads of every size that lsphp takes arrive as they were sent") {
    Stage stage;
    Client client = stage.client();
    for (const std::size_t size :
         {1000U, 8191U, 8192U, 8193U, 9216U, 20000U, 32768U, 65527U, 65534U, 65535U}) {
        CAPTURE(size);
        const std::string request = head_of_size(size);
        REQUIRE(request.size() == size);
        CHECK((client.ask(request) == request));
        // Followed by the next one.
        CHECK((client.ask(request + command("hello")) == request));
        CHECK(client.read_answer().text == "hello");
        CHECK(client.ask(command("hello") + request) == "hello");
        CHECK((client.read_answer().text == request));
        CHECK(stage.becomes(0, ChildState::idle));
    }
    const std::string trace = client.ask(command("trace"));
    CHECK(trace.find("garbled") == std::string::npos);
}

TEST_CASE("lsapi: numbers in the other order are the program's to turn around") {
    Stage stage;
    Client client = stage.client();
    Command command{.name = "body", .body = "some body"};
    command.layout.order =
        std::endian::native == std::endian::little ? std::endian::big : std::endian::little;
    CHECK(client.ask(bytes_of(command) + bytes_of({.name = "hello"})) == "some body");
    CHECK(client.read_answer().text == "hello");
    command.length_in_header = true;
    CHECK(client.ask(bytes_of(command) + bytes_of({.name = "hello"})) == "some body");
    CHECK(client.read_answer().text == "hello");
}

TEST_CASE("lsapi: bodies arrive as they were sent, and nothing that comes behind them") {
    Stage stage;
    stage.keep_parts();
    Client client = stage.client();
    const std::size_t head = command("body").size();
    for (const bool length_in_header : {false, true}) {
        for (const std::size_t size : {0UL, 1UL, 8191 - head, 8192 - head, 8193 - head, 16384UL, 16385UL,
                                       65536 - head, 65537 - head, 100000UL, 1000000UL}) {
            CAPTURE(size);
            const std::string body = random_text(size, static_cast<unsigned>(size));
            const std::string request =
                bytes_of({.name = "body", .body = body, .length_in_header = length_in_header});
            const std::string message = request + command("trace");
            bool sent = false;
            std::jthread sender{[&] {
                sent = true;
                for (std::size_t at = 0; at < message.size() && sent; at += 7919) {
                    sent = client.send(std::string_view{message}.substr(at, 7919));
                }
            }};
            const Answer answer = client.read_answer();
            sender.join();
            REQUIRE(sent);
            CHECK((answer.text == body));
            const auto sizes = reads(client.read_answer().text);
            std::size_t sum = 0;
            for (const std::size_t part : sizes) {
                sum += part;
            }
            CHECK(sum == message.size());
            CHECK(sizes.back() == message.size() - request.size());
            CHECK(stage.becomes(0, ChildState::idle));
        }
    }
}

TEST_CASE("lsapi: any requests in any pieces are answered in turn") {
    std::mt19937 random{7};
    std::string message;
    std::vector<std::string> expected;
    for (int i = 0; i < 200; ++i) {
        // Sizes of every order of magnitude.
        const auto any = [&](unsigned limit) { return std::size_t{random() % (1 + random() % limit)}; };
        const std::string text = random_text(any(200000), static_cast<unsigned>(random()));
        if (i % 3 == 0) {
            expected.push_back(head_of_size(500 + any(65000)));
            message += expected.back();
        } else {
            expected.push_back(text);
            message += bytes_of({.name = "body", .body = text, .length_in_header = i % 2 == 0});
        }
        for (std::size_t aborted = any(3); aborted > 0; --aborted) {
            message += packet(2);
        }
    }
    Stage stage;
    Client client = stage.client();
    bool sent = true;
    std::jthread sender{[&] {
        for (std::size_t at = 0; at < message.size() && sent;) {
            const std::size_t part = 1 + random() % (1 + random() % 100000);
            sent = client.send(std::string_view{message}.substr(at, part));
            at += part;
        }
    }};
    for (const std::string& text : expected) {
        const Answer answer = client.read_answer();
        CHECK((answer.complete && answer.text == text));
        if (!answer.complete) {
            client.shut_down();
            break;
        }
    }
    sender.join();
    CHECK(sent);
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).requests == expected.size());
    CHECK(stage.slot(0).refused == 0);
    CHECK(client.ask(command("trace")).find("garbled") == std::string::npos);
}

TEST_CASE("lsapi: a body that the script leaves unread is not taken for a request") {
    Stage stage;
    stage.keep_parts();
    Client client = stage.client();
    for (const std::size_t size : {10U, 10000U, 300000U}) {
        for (const std::size_t late : {std::size_t{0}, std::size_t{10}, std::size_t{size}}) {
            CAPTURE(size);
            CAPTURE(late);
            const std::string request = command("skip", "", std::string(size, 's'));
            REQUIRE(client.send(std::string_view{request}.substr(0, request.size() - late)));
            CHECK(client.read_answer().text == "hello");
            REQUIRE(client.send(std::string_view{request}.substr(request.size() - late)));
            CHECK(client.ask(command("hello")) == "hello");
            CHECK(stage.becomes(0, ChildState::idle));
        }
    }
    CHECK(stage.slot(0).refused == 0);
}

TEST_CASE("lsapi: an unread body that never comes costs its child a second and the connection") {
    Stage stage;
    stage.keep_parts();
    Client client = stage.client();
    CHECK(client.ask(bytes_of({.name = "skip", .body = "some", .body_length = 9})) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(client.ends());
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).refused == 0);
}
