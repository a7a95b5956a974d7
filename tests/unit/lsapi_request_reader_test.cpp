// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_request_reader.h"

#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"
#include "tests/support/packets.h"

using namespace cede::protocol;
using namespace cede::protocol::lsapi;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::env_entry;
using cede::tests::post_request;
using cede::tests::RawRequest;
using cede::tests::set_number;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs all_of(EnvCursor cursor) {
    Pairs pairs;
    while (const auto entry = cursor.next()) {
        pairs.emplace_back(entry->name, entry->value);
    }
    return pairs;
}

// The outcome for the bytes in memory of their own exact size, so that the address sanitizer sees any read
// beyond it. What was accepted is walked through.
Outcome outcome_of(std::string_view bytes) {
    const std::vector<std::byte> copy{as_bytes(bytes).begin(), as_bytes(bytes).end()};
    RequestReader reader;
    const Outcome outcome = reader.read(copy);
    if (outcome == Outcome::done) {
        std::size_t size = all_of(reader.env()).size() + all_of(reader.special_env()).size();
        for (std::size_t i = 0; i < reader.unknown_headers(); ++i) {
            size += reader.unknown_header(i).name.size() + reader.unknown_header(i).value.size();
        }
        for (std::size_t i = 0; i < indexed_header_names.size(); ++i) {
            size +=
                std::string{reader.header(IndexedHeader{static_cast<std::uint8_t>(i)}).value_or("")}.size();
        }
        size += reader.script_file().size() + reader.script_name().size() + reader.query_string().size() +
                reader.request_method().size() + reader.http_block().size();
        // Headers may overlap, but none is longer than its packet.
        CHECK(size < 65536 * (30 + 2 * reader.unknown_headers()));
    }
    return outcome;
}

Outcome outcome_of(const RawRequest& request) {
    return outcome_of(request.bytes());
}

// With another number at a place of the packet.
Outcome outcome_with(const RawRequest& request, std::size_t at, std::int64_t value, std::size_t size = 4) {
    std::string bytes = request.bytes();
    set_number(bytes, at, value, size, request.big);
    return outcome_of(bytes);
}

// Both orders of numbers, each with everything in it.
RawRequest full_request(bool big) {
    RawRequest request{.big = big, .body_length = 7};
    request.special_env =
        env_entry("\1\4display_errors", "1") + env_entry("\0SUEXEC_UGID"s, "\0\1\2\3\0\1\2\3"s);
    request.special_env_count = 2;
    request.env = env_entry("A", "") + env_entry("", "b") + env_entry("SCRIPT_FILENAME", "/x.php");
    request.env_count = 3;
    const auto script =
        static_cast<std::int64_t>(44 + request.special_env.size() + 4 + request.env.size() - 7);
    request.offsets = {script, script + 1, script + 2, script + 3};
    request.block = "\0\0\0\0PUT / HTTP/1.1\r\nX-One: 1\r\nHost: h\r\nX-Two:\r\n\r\n"s;
    request.indexed = {{10, 36, 1}, {24, 19, 3}};
    request.unknown = {{20, 5, 27, 1}, {39, 5, 45, 0}};
    return request;
}

// An empty list of this many entries of 6 bytes.
std::string many_entries(std::size_t count) {
    std::string list;
    for (std::size_t i = 0; i < count; ++i) {
        list += env_entry("", "");
    }
    return list;
}

}  // namespace

TEST_CASE("the worked example of a request is read as lsphp reads it") {
    const std::string bytes = cede::tests::example_request();
    REQUIRE(bytes.size() == 336);
    RequestReader reader;
    REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
    CHECK(reader.size() == 336);
    CHECK(reader.order() == std::endian::little);
    CHECK(reader.body_length() == 0);
    CHECK(reader.script_file() == "/w/i.php");
    CHECK(reader.script_name() == "/i.php");
    CHECK(reader.query_string().empty());
    CHECK(reader.request_method() == "GET");
    CHECK(all_of(reader.special_env()).empty());
    CHECK(all_of(reader.env()) == Pairs{{"SCRIPT_FILENAME", "/w/i.php"},
                                        {"QUERY_STRING", ""},
                                        {"SCRIPT_NAME", "/i.php"},
                                        {"REQUEST_METHOD", "GET"}});
    CHECK(reader.header(IndexedHeader::host) == "a");
    CHECK(reader.header(IndexedHeader::accept) == std::nullopt);
    CHECK(reader.unknown_headers() == 0);
    CHECK(reader.http_block() == "GET /i.php HTTP/1.1\r\nHost: a\r\n\r\n");
}

TEST_CASE("everything that a request can carry is read in both orders of numbers") {
    for (const bool big : {false, true}) {
        const std::string bytes = full_request(big).bytes() + "payload and more";
        RequestReader reader;
        REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
        CHECK(reader.order() == (big ? std::endian::big : std::endian::little));
        CHECK(reader.size() == bytes.size() - 16);
        CHECK(reader.body_length() == 7);
        CHECK(all_of(reader.special_env()) ==
              Pairs{{"\1\4display_errors", "1"}, {"\0SUEXEC_UGID"s, "\0\1\2\3\0\1\2\3"s}});
        CHECK(all_of(reader.env()) == Pairs{{"A", ""}, {"", "b"}, {"SCRIPT_FILENAME", "/x.php"}});
        CHECK(reader.script_file() == "/x.php");
        CHECK(reader.request_method() == "php");
        CHECK(reader.header(IndexedHeader::host) == "h");
        CHECK(reader.header(IndexedHeader::transfer_encoding) == "\nX-");
        REQUIRE(reader.unknown_headers() == 2);
        CHECK(reader.unknown_header(0).name == "X-One");
        CHECK(reader.unknown_header(0).value == "1");
        CHECK(reader.unknown_header(1).name == "X-Two");
        CHECK(reader.unknown_header(1).value.empty());
        CHECK(reader.http_block().substr(4, 3) == "PUT");
    }
}

TEST_CASE("a request cut at any byte is incomplete and nothing else") {
    for (const std::string& bytes :
         {cede::tests::example_request(), full_request(false).bytes(), full_request(true).bytes()}) {
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            REQUIRE(outcome_of(bytes.substr(0, size)) == Outcome::need_more);
        }
        CHECK(outcome_of(bytes) == Outcome::done);
    }
}

TEST_CASE("a request that is told wrong by its header alone is refused with the header") {
    const std::string right = cede::tests::example_request();
    CHECK(outcome_of("M" + right.substr(1, 7)) == Outcome::bad_magic);
    CHECK(outcome_of("LT" + right.substr(2, 6)) == Outcome::bad_magic);
    for (const unsigned type : {0U, 2U, 3U, 9U, 10U, 255U}) {
        CHECK(outcome_of(cede::tests::packet_header(type, 336)) == Outcome::unexpected_type);
    }
    for (const std::int64_t length :
         {std::int64_t{-1}, std::int64_t{-2147483648}, std::int64_t{0}, std::int64_t{8}, std::int64_t{43},
          std::int64_t{65536}, std::int64_t{2147483647}}) {
        CHECK(outcome_of(cede::tests::packet_header(1, length)) == Outcome::bad_packet_size);
    }
    CHECK(outcome_of(cede::tests::packet_header(1, 44)) == Outcome::need_more);
    CHECK(outcome_of(cede::tests::packet_header(1, 65535)) == Outcome::need_more);
    // The other bits of the flag mean nothing.
    std::string flagged = right;
    flagged[3] = static_cast<char>(flagged[3] | '\x7e');
    CHECK(outcome_of(flagged) == Outcome::done);
}

TEST_CASE("a request of the greatest length is read whole") {
    RawRequest request;
    request.block = std::string(65535 - request.block_at(), 'x');
    CHECK(outcome_of(request) == Outcome::done);
    request.block += 'x';
    CHECK(outcome_of(request) == Outcome::bad_packet_size);
}

TEST_CASE("8192 entries of each environment are read, one more is refused") {
    RawRequest request{.env = many_entries(8192), .env_count = 8192};
    CHECK(outcome_of(request) == Outcome::done);
    request = {.env = many_entries(8193), .env_count = 8193};
    CHECK(outcome_of(request) == Outcome::too_many_pairs);
    request = {.special_env = many_entries(8192), .special_env_count = 8192};
    CHECK(outcome_of(request) == Outcome::done);
    request = {.special_env = many_entries(8193), .special_env_count = 8193};
    CHECK(outcome_of(request) == Outcome::too_many_pairs);
    for (const std::size_t field : {36U, 40U}) {
        for (const std::int64_t count :
             {std::int64_t{-1}, std::int64_t{-2147483648}, std::int64_t{2147483647}}) {
            CHECK(outcome_with(RawRequest{}, field, count) == Outcome::too_many_pairs);
        }
    }
}

TEST_CASE("environment entries must be what their lengths say") {
    const std::string right = "\0\2\0\2a\0b\0"s;
    const auto outcome = [](const std::string& list, std::int64_t count = 1) {
        const Outcome env = outcome_of(RawRequest{.env = list, .env_count = count});
        CHECK(outcome_of(RawRequest{.special_env = list, .special_env_count = count}) == env);
        return env;
    };
    CHECK(outcome(right) == Outcome::done);
    CHECK(outcome(right, 0) == Outcome::bad_entry);
    CHECK(outcome(right, 2) == Outcome::bad_entry);
    CHECK(outcome("\0\0\0\2b\0"s) == Outcome::bad_entry);          // no name, not even its NUL
    CHECK(outcome("\0\2\0\0a\0"s) == Outcome::bad_entry);          // no value
    CHECK(outcome("\0\2\0\2axb\0"s) == Outcome::bad_entry);        // a name without its NUL
    CHECK(outcome("\0\2\0\2a\0bx"s) == Outcome::bad_entry);        // a value without its NUL
    CHECK(outcome("\0\2\0\1a\0b\0"s) == Outcome::bad_entry);       // the terminator does not follow
    CHECK(outcome("\xff\xff\0\1a\0b\0"s) == Outcome::bad_entry);   // a name beyond the packet
    CHECK(outcome("\0\2\xff\xffpa\0b\0"s) == Outcome::bad_entry);  // a value beyond the packet
    CHECK(outcome("\xff\xff\xff\xff"s) == Outcome::bad_entry);
    // A terminator that is not four zero bytes, each of them.
    for (std::size_t i = 0; i < 4; ++i) {
        std::string bytes = RawRequest{}.bytes();
        bytes[44 + i] = 'x';
        CHECK(outcome_of(bytes) == Outcome::bad_entry);
        bytes = RawRequest{}.bytes();
        bytes[48 + i] = 'x';
        CHECK(outcome_of(bytes) == Outcome::bad_entry);
    }
}

TEST_CASE("an environment entry may be as long as its packet allows and not a byte longer") {
    // A packet that ends in the middle of its lists, at every byte of them.
    const std::string whole = RawRequest{.env = env_entry("NAME", "value"), .env_count = 1}.bytes();
    for (std::size_t size = 44; size < 44 + 4 + 15 + 4; ++size) {
        std::string part = whole.substr(0, size);
        set_number(part, 4, static_cast<std::int64_t>(size));
        CHECK(outcome_of(part) == Outcome::bad_entry);
    }
}

TEST_CASE("the four offsets of values must lie inside the packet and end in it") {
    RawRequest request;
    request.block += '\0';
    const auto size = static_cast<std::int64_t>(request.bytes().size());
    for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t field = 16 + 4 * i;
        CHECK(outcome_with(request, field, size - 1) == Outcome::done);
        CHECK(outcome_with(request, field, size) == Outcome::bad_offset);
        CHECK(outcome_with(request, field, 0) == Outcome::done);
        CHECK(outcome_with(request, field, -1) == Outcome::bad_offset);
        CHECK(outcome_with(request, field, -2147483648) == Outcome::bad_offset);
        CHECK(outcome_with(request, field, 2147483647) == Outcome::bad_offset);
        // A text that no NUL ends before the packet does.
        CHECK(outcome_with(RawRequest{}, field, static_cast<std::int64_t>(RawRequest{}.bytes().size()) - 1) ==
              Outcome::bad_offset);
    }
}

TEST_CASE("the parts of a request must add up to its length exactly") {
    const RawRequest request = full_request(true);
    const auto block = static_cast<std::int64_t>(request.block.size());
    CHECK(outcome_with(request, 8, block) == Outcome::done);
    for (const std::int64_t wrong : {block - 1, block + 1, block + 16, block - 16, std::int64_t{-1},
                                     std::int64_t{-2147483648}, std::int64_t{2147483647}}) {
        CHECK(outcome_with(request, 8, wrong) == Outcome::size_mismatch);
    }
    for (const std::int64_t wrong : {1, 3, 0, -1, -2147483647, 2147483647, 268435458}) {
        CHECK(outcome_with(request, 32, wrong) == Outcome::size_mismatch);
    }
    std::string longer = request.bytes() + 'x';
    set_number(longer, 4, static_cast<std::int64_t>(longer.size()), 4, true);
    CHECK(outcome_of(longer) == Outcome::size_mismatch);
    std::string shorter = request.bytes();
    set_number(shorter, 4, static_cast<std::int64_t>(shorter.size()) - 1, 4, true);
    CHECK(outcome_of(shorter) == Outcome::size_mismatch);
    // A negative number that another one makes up for is refused as well.
    const auto plain = static_cast<std::int64_t>(RawRequest{}.block.size());
    for (const std::int64_t unknown : {std::int64_t{-1}, plain / 16 + 1}) {
        std::string negative = RawRequest{}.bytes();
        set_number(negative, 32, unknown);
        set_number(negative, 8, plain - 16 * unknown);
        CHECK(outcome_of(negative) == Outcome::size_mismatch);
    }
}

TEST_CASE("padding of every length is passed over, whatever it holds") {
    for (std::size_t length = 0; length < 8; ++length) {
        RawRequest request{.env = env_entry("N", std::string(length, 'v')), .env_count = 1};
        std::string bytes = request.bytes();
        for (std::size_t at = 44 + 4 + request.env.size() + 4; at < request.index_at(); ++at) {
            bytes[at] = 'p';
        }
        CHECK(outcome_of(bytes) == Outcome::done);
    }
}

TEST_CASE(
    "every header of the index must lie inside the block, except the last, which lsphp does not look at") {
    for (std::int64_t place = 0; place < 25; ++place) {
        RawRequest request{.big = place % 2 == 0};
        const auto size = static_cast<std::int64_t>(request.block.size());
        const auto outcome = [&](std::int64_t offset, std::int64_t length) {
            request.indexed = {{place, offset, length}};
            return outcome_of(request);
        };
        const Outcome outside = place == 24 ? Outcome::done : Outcome::bad_offset;
        CHECK(outcome(1, size - 1) == Outcome::done);
        CHECK(outcome(1, size) == outside);
        CHECK(outcome(size, 0) == Outcome::done);
        CHECK(outcome(size + 1, 0) == outside);
        CHECK(outcome(1, 65535) == outside);
        CHECK(outcome(2147483647, 65535) == outside);
        CHECK(outcome(-1, 1) == outside);
        CHECK(outcome(-2147483648, 0) == outside);
        CHECK(outcome(0, 65535) == Outcome::done);  // absent, so that the length means nothing
    }
    RawRequest request{.indexed = {{24, 1, 60000}}};
    const std::string bytes = request.bytes();
    RequestReader reader;
    REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
    CHECK(reader.header(IndexedHeader::transfer_encoding) == std::nullopt);
}

TEST_CASE("name and value of every unknown header must lie inside the block") {
    for (const bool big : {false, true}) {
        RawRequest request{.big = big};
        const auto size = static_cast<std::int64_t>(request.block.size());
        const auto outcome = [&](std::int64_t offset, std::int64_t length) {
            request.unknown = {{0, 0, 0, 0}, {offset, length, 0, 0}};
            const Outcome name = outcome_of(request);
            request.unknown = {{0, 0, 0, 0}, {0, 0, offset, length}};
            CHECK(outcome_of(request) == name);
            return name;
        };
        CHECK(outcome(0, size) == Outcome::done);
        CHECK(outcome(size, 0) == Outcome::done);
        CHECK(outcome(0, size + 1) == Outcome::bad_offset);
        CHECK(outcome(size + 1, 0) == Outcome::bad_offset);
        CHECK(outcome(1, size) == Outcome::bad_offset);
        CHECK(outcome(-1, 1) == Outcome::bad_offset);
        CHECK(outcome(1, -1) == Outcome::bad_offset);
        CHECK(outcome(2147483647, 2147483647) == Outcome::bad_offset);
        CHECK(outcome(-2147483648, -2147483648) == Outcome::bad_offset);
    }
}

TEST_CASE("the body is as long as announced, or as Content-Length says") {
    const auto body = [](const RawRequest& request) {
        const std::string bytes = request.bytes();
        RequestReader reader;
        REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
        CHECK(reader.announced_body_length() == request.body_length);
        return reader.body_length();
    };
    CHECK(body(post_request("99", 7)) == 7);
    CHECK(body(post_request("99", 0)) == 0);
    CHECK(body(post_request("99", 2147483647)) == 2147483647);
    CHECK(body(post_request("99", -1)) == 0);
    CHECK(body(post_request("99", -3)) == 0);
    CHECK(body(post_request("99")) == 99);
    CHECK(body(post_request("3000000000", -2, true)) == 3'000'000'000);
    CHECK(body(post_request("-99")) == 0);
    CHECK(body(post_request("x")) == 0);
    CHECK(body(RawRequest{.body_length = -2}) == 0);
}

TEST_CASE("a refused request leaves the reader with the one it had") {
    const std::string right = cede::tests::example_request();
    std::string wrong = full_request(false).bytes();
    set_number(wrong, 8, 1);
    RequestReader reader;
    REQUIRE(reader.read(as_bytes(right)) == Outcome::done);
    CHECK(reader.read(as_bytes(wrong)) == Outcome::size_mismatch);
    CHECK(reader.read(as_bytes(right).first(100)) == Outcome::need_more);
    CHECK(reader.size() == 336);
    CHECK(reader.script_file() == "/w/i.php");
}

TEST_CASE("requests with any bytes in them are read or refused, never out of bounds") {
    std::mt19937 random{11};
    const std::array<std::string, 4> seeds{cede::tests::example_request(), full_request(false).bytes(),
                                           full_request(true).bytes(), post_request("12").bytes()};
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string bytes = seeds[random() % seeds.size()];
        for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
            bytes[random() % bytes.size()] = static_cast<char>(random() % 3 == 0 ? random() % 4 : random());
        }
        accepted += outcome_of(bytes) == Outcome::done ? 1 : 0;
    }
    CHECK(accepted > 0);
    for (int round = 0; round < 2'000; ++round) {
        std::string bytes(44 + random() % 400, '\0');
        for (char& byte : bytes) {
            byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
        }
        bytes.replace(0, 8, cede::tests::packet_header(1, static_cast<std::int64_t>(bytes.size())));
        CHECK(outcome_of(bytes) != Outcome::need_more);
    }
}
