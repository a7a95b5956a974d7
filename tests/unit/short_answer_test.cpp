// SPDX-License-Identifier: Apache-2.0
#include "protocol/short_answer.h"

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/fastcgi_reader.h"
#include "protocol/lsapi_response_reader.h"
#include "tests/support/every_split.h"
#include "tests/support/packets.h"
#include "tests/support/records.h"

using namespace cede::protocol;
using namespace std::string_literals;
using cede::tests::as_text;
using cede::tests::packet;
using cede::tests::record;

namespace {

constexpr std::array<std::string_view, 2> lines{"Retry-After: 1", "X-Why: busy"};
constexpr ShortAnswer refusal{
    .status = 503, .reason = "Service Unavailable", .lines = lines, .body = "Busy.\n", .overloaded = true};

std::string written(Protocol protocol, const ShortAnswer& answer, std::size_t room = 1000,
                    std::uint16_t id = 1) {
    std::vector<std::byte> out(room);
    return std::string{as_text(Bytes{out}.first(write_short_answer(protocol, out, id, answer)))};
}

}  // namespace

TEST_CASE("a short answer of FastCGI is one STDOUT record, its end and the end of the request") {
    const std::string text =
        "Status: 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\nX-Why: busy\r\n\r\n"
        "Busy.\n";
    CHECK(written(Protocol::fastcgi, refusal, 1000, 0x1234) ==
          record(6, text, 0, 0x1234) + record(6, "", 0, 0x1234) + record(3, "\0\0\0\0\2\0\0\0"s, 0, 0x1234));
    ShortAnswer pong{.lines = {}, .body = "pong"};
    CHECK(written(Protocol::fastcgi, pong) ==
          record(6, "Status: 200 OK\r\nContent-Type: text/plain\r\n\r\npong") + record(6, "") +
              record(3, std::string(8, '\0')));
}

TEST_CASE("a short answer of LSAPI is a header, a body and its end") {
    const std::string head = "\3\0\0\0\xf7\1\0\0"s + "\x19\0\x0f\0\x0c\0"s + "Content-Type: text/plain\0"s +
                             "Retry-After: 1\0"s + "X-Why: busy\0"s;
    CHECK(written(Protocol::lsapi, refusal) == packet(3, head) + packet(4, "Busy.\n") + packet(5));
    ShortAnswer none{.status = 408, .lines = {}, .body = {}};
    CHECK(written(Protocol::lsapi, none) ==
          packet(3, "\1\0\0\0\x98\1\0\0\x19\0"s + "Content-Type: text/plain\0"s) + packet(5));
}

TEST_CASE("a short answer is written whole or not at all") {
    for (const Protocol protocol : {Protocol::fastcgi, Protocol::lsapi}) {
        const std::string whole = written(protocol, refusal);
        for (std::size_t room = 0; room < whole.size(); ++room) {
            REQUIRE(written(protocol, refusal, room).empty());
        }
        CHECK(written(protocol, refusal, whole.size()) == whole);
    }
    CHECK(written(Protocol::unknown, refusal).empty());
    const std::string large(65536, 'x');
    ShortAnswer answer{.lines = {}, .body = large};
    CHECK(written(Protocol::fastcgi, answer, 100'000).empty());
    CHECK(!written(Protocol::lsapi, answer, 100'000).empty());
    const std::vector<std::string_view> many(9, "A: b");
    answer = {.lines = many, .body = {}};
    CHECK(written(Protocol::lsapi, answer).empty());
}

TEST_CASE("our own readers take a short answer for what it is") {
    const std::string fcgi = written(Protocol::fastcgi, refusal, 1000, 7);
    fastcgi::ResponseReader reader{7};
    Bytes input = cede::tests::as_bytes(fcgi);
    REQUIRE(reader.next(input) == fastcgi::ResponseEvent::stdout_bytes);
    REQUIRE(reader.next(input) == fastcgi::ResponseEvent::end_request);
    CHECK(reader.protocol_status() == fastcgi::ProtocolStatus::overloaded);
    CHECK(input.empty());
    const std::string ls = written(Protocol::lsapi, refusal);
    std::array<std::byte, 500> storage;
    lsapi::ResponseReader answers{storage};
    input = cede::tests::as_bytes(ls);
    REQUIRE(answers.next(input) == lsapi::ResponseEvent::head);
    CHECK(answers.status() == 503);
    REQUIRE(answers.next(input) == lsapi::ResponseEvent::body_bytes);
    REQUIRE(answers.next(input) == lsapi::ResponseEvent::end);
    CHECK(input.empty());
}
