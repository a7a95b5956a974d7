// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "protocol/lsapi_request_reader.h"
#include "protocol/request_head.h"
#include "tests/support/every_split.h"
#include "tests/support/head.h"
#include "tests/support/packets.h"

using namespace cede::protocol;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::env_entry;
using cede::tests::RawRequest;

namespace {

RequestHead head_of(std::string_view bytes) {
    return cede::tests::head_of(Protocol::lsapi, bytes);
}

std::optional<std::string> find(std::string_view head, std::string_view name, std::size_t room = 64) {
    return cede::tests::find(Protocol::lsapi, head, name, room);
}

std::string added(const std::string& bytes, std::string_view name, std::string_view value,
                  std::size_t room = 1000) {
    return cede::tests::added(Protocol::lsapi, bytes, name, value, room).value_or("nothing");
}

// Everything that lsphp takes from a request, as text.
std::string told_by(std::string_view bytes) {
    lsapi::RequestReader reader;
    REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
    std::string all;
    for (lsapi::EnvCursor list : {reader.special_env(), reader.env()}) {
        while (const auto entry = list.next()) {
            all += std::string{entry->name} + "=" + std::string{entry->value} + ";";
        }
        all += "|";
    }
    for (std::size_t i = 0; i < lsapi::indexed_header_names.size(); ++i) {
        all += std::string{reader.header(lsapi::IndexedHeader{static_cast<std::uint8_t>(i)}).value_or("-")} +
               ",";
    }
    for (std::size_t i = 0; i < reader.unknown_headers(); ++i) {
        all += std::string{reader.unknown_header(i).name} + ":" + std::string{reader.unknown_header(i).value};
    }
    for (const std::string_view text : {reader.script_file(), reader.script_name(), reader.query_string(),
                                        reader.request_method(), reader.http_block()}) {
        all += "|" + std::string{text};
    }
    return all + std::to_string(reader.announced_body_length());
}

RawRequest full_request(bool big, std::size_t filler) {
    RawRequest request{.big = big, .body_length = 7};
    request.special_env = env_entry("\1\4display_errors", "1");
    request.special_env_count = 1;
    request.env = env_entry("A", "") + env_entry("F", std::string(filler, 'f')) +
                  env_entry("SCRIPT_FILENAME", "/x.php");
    request.env_count = 3;
    const auto script =
        static_cast<std::int64_t>(44 + request.special_env.size() + 4 + request.env.size() - 7);
    request.block = "GET / HTTP/1.1\r\nX-One: 1\r\nHost: h\r\nX-One: 2\r\n\r\n"s;
    request.indexed = {{10, 32, 1}};
    request.unknown = {{16, 5, 23, 1}, {35, 5, 42, 1}};
    const auto block = static_cast<std::int64_t>(request.block_at());
    request.block += '\0';
    request.offsets = {script, script + 1, script - 16, block + 4};
    return request;
}

}  // namespace

TEST_CASE("a request of LSAPI is incomplete at each byte of its packet and complete behind its body") {
    for (const bool big : {false, true}) {
        const std::string packet = full_request(big, 3).bytes();
        const std::string whole = packet + "payload";
        for (std::size_t size = 0; size <= whole.size(); ++size) {
            const RequestHead head = head_of(whole.substr(0, size));
            REQUIRE(head.outcome == (size < packet.size() ? Outcome::need_more : Outcome::done));
            CHECK(head.request_complete == (size == whole.size()));
            CHECK(head.request_size == (size == whole.size() ? whole.size() : 0));
            if (head.outcome == Outcome::done) {
                CHECK(head.head_size == packet.size());
                CHECK(head.body_length == 7);
                CHECK(head.body_here == size - packet.size());
                CHECK(head.keep_connection);
            }
        }
        CHECK(head_of(whole + "LS").request_size == whole.size());
    }
    CHECK(head_of(cede::tests::example_request()).request_complete);
    const std::string far = cede::tests::post_request("9223372036854775807").bytes() + "some";
    CHECK(!head_of(far).request_complete);
    CHECK(head_of(far).body_length == 9223372036854775807U);
}

TEST_CASE("an ABORT_REQUEST in front of a request may be skipped, other packets may not") {
    const std::string abort = cede::tests::packet(2);
    CHECK(head_of(abort).outcome == Outcome::unexpected_type);
    CHECK(head_of(abort).head_size == 8);
    CHECK(!head_of(abort).request_complete);
    CHECK(head_of(abort.substr(0, 7)).outcome == Outcome::need_more);
    CHECK(head_of(cede::tests::packet(2, "x")).head_size == 0);
    CHECK(head_of(cede::tests::packet(5)).head_size == 0);
    CHECK(head_of("XX123456").outcome == Outcome::bad_magic);
    CHECK(find(abort, "A") == std::nullopt);
    CHECK(added(abort, "A", "b") == "nothing");
}

TEST_CASE("a protocol that is not known has no heads") {
    const std::string bytes = cede::tests::example_request();
    CHECK(cede::tests::head_of(Protocol::unknown, bytes).outcome == Outcome::bad_version);
    CHECK(cede::tests::find(Protocol::unknown, bytes, "SCRIPT_NAME", 64) == std::nullopt);
    CHECK(cede::tests::added(Protocol::unknown, bytes, "A", "b", 900) == std::nullopt);
}

TEST_CASE("variables are found in the environment and, as CGI calls them, in the headers") {
    for (const bool big : {false, true}) {
        const std::string head = full_request(big, 9).bytes();
        CHECK(find(head, "A") == "");
        CHECK(find(head, "F", 9) == "fffffffff");
        CHECK(find(head, "F", 8) == std::nullopt);
        CHECK(find(head, "SCRIPT_FILENAME") == "/x.php");
        CHECK(find(head, "SCRIPT_FILE") == std::nullopt);
        CHECK(find(head, "HTTP_HOST") == "h");
        CHECK(find(head, "HTTP_X_ONE") == "2");
        CHECK(find(head, "HTTP_X_O") == std::nullopt);
        CHECK(find(head, "HTTP_ACCEPT") == std::nullopt);
        CHECK(find(head, "HOST") == std::nullopt);
        CHECK(find(head, "display_errors") == std::nullopt);
        CHECK(find(head.substr(0, head.size() - 1), "A") == std::nullopt);
    }
    const std::string post = cede::tests::post_request("12").bytes();
    CHECK(find(post, "CONTENT_LENGTH") == "12");
    CHECK(find(post, "HTTP_CONTENT_LENGTH") == std::nullopt);
    RawRequest twice{.env = env_entry("HTTP_HOST", "env") + env_entry("B", "1") + env_entry("B", "2"),
                     .env_count = 3,
                     .indexed = {{10, 4, 3}}};
    CHECK(find(twice.bytes(), "HTTP_HOST") == "env");
    CHECK(find(twice.bytes(), "B") == "2");
}

TEST_CASE("a variable is added to the environment, and all else is as it was") {
    for (const bool big : {false, true}) {
        for (std::size_t filler = 0; filler < 9; ++filler) {
            for (std::size_t length = 0; length < 9; ++length) {
                const std::string before = full_request(big, filler).bytes() + "payload and more";
                const std::string value(length, 'v');
                const std::string after = added(before, "CEDE_X", value);
                std::string expected = told_by(before);
                expected.insert(expected.find("/x.php;") + 7, "CEDE_X=" + value + ";");
                REQUIRE(told_by(after) == expected);
                REQUIRE(after.ends_with("payload and more"));
                REQUIRE(head_of(after).head_size == after.size() - 16);
                REQUIRE(find(after.substr(0, after.size() - 16), "CEDE_X") == value);
            }
        }
    }
    const std::string first = added(cede::tests::RawRequest{}.bytes(), "CEDE_X", "1");
    CHECK(find(first, "CEDE_X") == "1");
    CHECK(find(added(first, "B", "2"), "B") == "2");
}

TEST_CASE("an offset into what moves moves with it, and one into the padding refuses the variable") {
    RawRequest request{.env = env_entry("N", "v"), .env_count = 1};
    const auto terminator = static_cast<std::int64_t>(44 + 4 + request.env.size());
    REQUIRE(request.index_at() == 64);
    request.offsets = {terminator, terminator + 3, terminator - 1, 64};
    CHECK(told_by(added(request.bytes(), "CEDE_X", "1")).find("||||") != std::string::npos);
    request.offsets = {terminator + 4, 0, 0, 0};
    CHECK(added(request.bytes(), "CEDE_X", "1") == "nothing");
    request.offsets = {63, 0, 0, 0};
    CHECK(added(request.bytes(), "CEDE_X", "1") == "nothing");
}

TEST_CASE("a variable that LSAPI has no room for is not added, and nothing is touched") {
    RawRequest request = full_request(false, 4);
    const std::string before = request.bytes();
    const std::size_t grown = added(before, "CEDE_X", "1234").size();
    CHECK(grown == before.size() + 16);
    CHECK(added(before, "CEDE_X", "1234", grown).size() == grown);
    CHECK(added(before, "CEDE_X", "1234", grown - 1) == "nothing");
    CHECK(added(before, std::string(1024, 'N'), "1", 4000) != "nothing");
    CHECK(added(before, std::string(1025, 'N'), "1", 4000) == "nothing");
    CHECK(added(before, "N", std::string(65535, 'v'), 200'000) == "nothing");
    RawRequest large;
    large.block = std::string(65535 - large.block_at() - 16, 'x');
    CHECK(added(large.bytes(), "CEDE_X", "1", 200'000).size() == 65535);
    large.block += 'x';
    CHECK(added(large.bytes(), "CEDE_X", "1", 200'000) == "nothing");
    std::string entries;
    for (int i = 0; i < 8191; ++i) {
        entries += env_entry("", "");
    }
    RawRequest many{.env = entries, .env_count = 8191};
    const std::string full = added(many.bytes(), "A", "", 200'000);
    CHECK(head_of(full).outcome == Outcome::done);
    CHECK(added(full, "B", "", 200'000) == "nothing");
}

TEST_CASE("what lsphp would show under the name of an added variable loses its name") {
    for (const std::string& forged :
         {"CEDE_QUEUE_USEC"s, "CEDE.QUEUE_USEC"s, "CEDE QUEUE.USEC"s, " CEDE_QUEUE_USEC"s, "CEDE[QUEUE_USEC"s,
          "CEDE_QUEUE_USEC\0more"s, "CEDE_QUEUE_USEC[x]"s}) {
        RawRequest request{.env = env_entry(forged, "1") + env_entry("B", "2") + env_entry(forged, "3"),
                           .env_count = 3};
        const std::string with = added(request.bytes(), "CEDE_QUEUE_USEC", "9");
        const std::string hidden = "\0"s + forged.substr(1);
        CHECK(told_by(with).find("|" + hidden + "=1;B=2;" + hidden + "=3;CEDE_QUEUE_USEC=9;|") !=
              std::string::npos);
        CHECK(find(with, "CEDE_QUEUE_USEC") == "9");
    }
}

TEST_CASE("bytes of any kind make no head of LSAPI that is not there") {
    std::mt19937 random{5};
    const std::array<std::string, 4> seeds{
        cede::tests::example_request(), full_request(false, 5).bytes() + "payload",
        full_request(true, 0).bytes(), cede::tests::post_request("3").bytes()};
    int complete = 0;
    for (int round = 0; round < 20'000; ++round) {
        const std::string bytes = cede::tests::damaged(seeds[random() % seeds.size()], random);
        complete += cede::tests::check_any_bytes(Protocol::lsapi, bytes) ? 1 : 0;
    }
    CHECK(complete > 1000);
}
