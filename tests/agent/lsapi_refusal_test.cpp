// SPDX-License-Identifier: Apache-2.0
// LSAPI: what breaks the protocol does not reach the program.
#include <chrono>
#include <random>

#include <doctest/doctest.h>

#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/packets.h"
#include "tests/support/records.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildSays;
using cede::children::ChildState;
using cede::protocol::Outcome;
using cede::protocol::Protocol;

namespace {

struct Bad {
    std::string what;
    std::string bytes;
    Outcome outcome;
};

std::string changed(std::size_t at, std::int64_t value, std::size_t size = 4) {
    std::string bytes = example_request();
    set_number(bytes, at, value, size);
    return bytes;
}

std::string with_magic(const std::string& magic) {
    return magic + example_request().substr(2);
}

// One for each limit of docs/lsapi.md.
std::vector<Bad> bad_requests() {
    const std::string no_nul = number(1, 2, true) + number(1, 2, true) + "Ab";
    std::string without_end = RawRequest{}.bytes();
    without_end.replace(48, 4, "oops");
    return {
        {"not LS", with_magic("XS"), Outcome::bad_magic},
        {"text", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", Outcome::bad_magic},
        {"an answer", packet(5), Outcome::unexpected_type},
        {"type 0", packet(0), Outcome::unexpected_type},
        {"type 255", packet(255, "content"), Outcome::unexpected_type},
        {"a long ABORT_REQUEST", packet(2, "x"), Outcome::unexpected_type},
        {"length 0", packet_header(1, 0), Outcome::bad_packet_size},
        {"length 43", packet_header(1, 43) + std::string(35, '\0'), Outcome::bad_packet_size},
        {"length 65536", packet_header(1, 65536), Outcome::bad_packet_size},
        {"a negative length", packet_header(1, -1), Outcome::bad_packet_size},
        {"the other order's length", packet_header(1, 0x150, true).substr(0, 4) + number(0x150, 4),
         Outcome::bad_packet_size},
        {"8193 variables", changed(36, 8193), Outcome::too_many_pairs},
        {"-1 variables", changed(36, -1), Outcome::too_many_pairs},
        {"8193 settings", changed(40, 8193), Outcome::too_many_pairs},
        {"one variable too many", changed(36, 5), Outcome::bad_entry},
        {"one variable too few", changed(36, 3), Outcome::bad_entry},
        {"a name without its NUL", RawRequest{.env = no_nul, .env_count = 1}.bytes(), Outcome::bad_entry},
        {"a name that ends nowhere", changed(0x30, 0xffff, 2), Outcome::bad_entry},
        {"a list that does not end", without_end, Outcome::bad_entry},
        {"a script beyond the packet", changed(16, 0x150), Outcome::bad_offset},
        {"a negative query string", changed(24, -1), Outcome::bad_offset},
        {"a header beyond the block", RawRequest{.indexed = {{10, 17, 2}}}.bytes(), Outcome::bad_offset},
        {"a negative header", RawRequest{.indexed = {{0, -1, 1}}}.bytes(), Outcome::bad_offset},
        {"an unknown header beyond the block", RawRequest{.unknown = {{0, 1, 0, 99}}}.bytes(),
         Outcome::bad_offset},
        {"a block that is longer", changed(8, 33), Outcome::size_mismatch},
        {"a block that is shorter", changed(8, 31), Outcome::size_mismatch},
        {"more unknown headers than there are", changed(32, 1), Outcome::size_mismatch},
        {"a longer packet", packet_header(1, 0x151) + example_request().substr(8) + "x",
         Outcome::size_mismatch},
    };
}

void refuse_one_of_each(bool used) {
    for (const Bad& bad : bad_requests()) {
        CAPTURE(bad.what);
        Stage stage;
        Client client = used ? stage.used_client() : stage.client();
        REQUIRE(stage.becomes(0, ChildState::idle));
        REQUIRE(client.send(bad.bytes));
        CHECK(client.ends());
        CHECK(stage.becomes(0, ChildState::free));
        CHECK(stage.slot(0).refused == 1);
        const auto heard = stage.hear(0);
        CHECK(heard.says == ChildSays::refused);
        CHECK(heard.why == bad.outcome);
        Client next = stage.client();
        const std::string trace = next.ask(command("trace"));
        CHECK(trace.find("garbled") == std::string::npos);
        CHECK(trace.find("errno") == std::string::npos);
        CHECK(next.ask(command("pid")).starts_with(std::to_string(stage.child)));
        CHECK(stage.slot(0).refused == 1);
        CHECK_FALSE(stage.has_parked());
    }
}

}  // namespace

TEST_CASE("lsapi: a bad first request does not reach the program, and the supervisor hears why") {
    refuse_one_of_each(false);
}

TEST_CASE("lsapi: a bad request behind a good one does not reach the program, either") {
    refuse_one_of_each(true);
}

TEST_CASE("lsapi: a bad request may come in pieces") {
    Stage stage;
    stage.keep_parts();
    std::uint64_t refused = 0;
    for (const Bad& bad : bad_requests()) {
        CAPTURE(bad.what);
        Client client = stage.client();
        for (std::size_t at = 0; at < bad.bytes.size(); at += 5) {
            // It may be refused by its first pieces.
            (void)client.send(std::string_view{bad.bytes}.substr(at, 5));
        }
        REQUIRE(soon([&] { return stage.slot(0).refused == refused + 1; }));
        REQUIRE(stage.becomes(0, ChildState::free));
        ++refused;
    }
    Client next = stage.client();
    CHECK(next.ask(command("trace")).find("garbled") == std::string::npos);
}

TEST_CASE("lsapi: requests in front of a bad one are answered first") {
    Stage stage;
    Client client = stage.client();
    REQUIRE(client.send(command("hello") + command("body", "", "some body") + "not a packet"));
    CHECK(client.read_answer().text == "hello");
    CHECK(client.read_answer().text == "some body");
    CHECK(client.ends());
    CHECK(stage.hear(0).why == Outcome::bad_magic);
    CHECK(stage.slot(0).requests == 2);
}

TEST_CASE("lsapi: a body that is longer than announced is refused behind its answer") {
    Stage stage;
    Client client = stage.client();
    CHECK(client.ask(bytes_of({.name = "body", .body = "some body and more", .body_length = 9})) ==
          "some body");
    CHECK(client.ends());
    CHECK(stage.hear(0).why == Outcome::bad_magic);
    CHECK(stage.becomes(0, ChildState::free));
}

TEST_CASE("lsapi: the supervisor is told of refusals at the most once a second, and all are counted") {
    Stage stage;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 1; i <= 100; ++i) {
        Client client = stage.client();
        REQUIRE(client.send("not a packet"));
        CHECK(client.ends());
        REQUIRE(stage.becomes(0, ChildState::free));
        REQUIRE(stage.slot(0).refused == i);
    }
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    int told = 0;
    while (stage.has_spoken(0)) {
        CHECK(stage.hear(0).says == ChildSays::refused);
        ++told;
    }
    CHECK(told >= 1);
    CHECK(told <= 1 + seconds);
}

TEST_CASE("lsapi: the child of another connection notices nothing of a bad request") {
    Stage stage;
    Client good = stage.used_client();
    stage.start_child(1);
    for (const Bad& bad : bad_requests()) {
        CAPTURE(bad.what);
        Client client = stage.client();
        REQUIRE(client.send(bad.bytes));
        CHECK(good.ask(command("hello")) == "hello");
        CHECK(client.ends());
    }
    CHECK(stage.slot(0).refused == 0);
    CHECK(stage.slot(1).refused == bad_requests().size());
}

TEST_CASE("a peer that speaks the other protocol is refused, and the report says which it was") {
    for (const bool lsapi : {true, false}) {
        CAPTURE(lsapi);
        StandIn::Options options;
        if (lsapi) {
            options = as_lsphp();
        }
        StandIn stand_in{options};
        stand_in.wait_until_ready();
        stand_in.start_child();
        Client client{stand_in.connect()};
        REQUIRE(client.send(lsapi ? request(pair("COMMAND", "hello")) : command("hello")));
        CHECK(client.ends());
        const auto heard = stand_in.hear(0);
        CHECK(heard.says == ChildSays::refused);
        CHECK(heard.why == (lsapi ? Outcome::bad_magic : Outcome::bad_version));
        CHECK(heard.spoken == (lsapi ? Protocol::fastcgi : Protocol::lsapi));
        CHECK(stand_in.slot(0).refused == 1);
        CHECK(stand_in.becomes(0, ChildState::free));
    }
}

TEST_CASE("lsapi: garbage of any kind harms nobody") {
    Stage stage;
    std::mt19937 random{5};
    const std::string good = command("body", "", "some body");
    for (int i = 0; i < 200; ++i) {
        Client client = stage.client();
        std::string bytes = good;
        // A few wrong bytes in a good request; often it stays one.
        for (unsigned wrong = 1 + random() % 4; wrong > 0; --wrong) {
            bytes[random() % bytes.size()] = static_cast<char>(random() % 3 == 0 ? random() : random() % 9);
        }
        REQUIRE(client.send(bytes));
        ::shutdown(client.fd(), SHUT_WR);
        REQUIRE(stage.becomes(0, ChildState::free));
    }
    Client next = stage.client();
    const std::string trace = next.ask(command("trace"));
    CHECK(trace.find("garbled") == std::string::npos);
    CHECK(next.ask(command("pid")).starts_with(std::to_string(stage.child)));
}
