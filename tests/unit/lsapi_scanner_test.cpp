// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_scanner.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"
#include "tests/support/packets.h"

using namespace cede::protocol::lsapi;
using namespace std::string_literals;
using cede::protocol::Bytes;
using cede::tests::as_bytes;
using cede::tests::every_split;
using cede::tests::packet;
using cede::tests::packet_header;
using cede::tests::post_request;
using cede::tests::RawRequest;

namespace {

struct State {
    std::uint64_t begun = 0;
    bool head = false;
    bool complete = false;
    std::uint64_t ended = 0;
    bool close = false;
    bool boundary = true;
    bool lost = false;

    bool operator==(const State&) const = default;
};

std::int64_t number_at(std::string_view bytes, std::int64_t at, std::size_t size = 4) {
    const bool big = order_of(static_cast<std::uint8_t>(bytes[3])) == std::endian::big;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const std::size_t from = static_cast<std::size_t>(at) + (big ? i : size - 1 - i);
        value = value << 8U | static_cast<unsigned char>(bytes[from]);
    }
    return size == 4 ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
}

// What lsphp takes for the body's length of a packet that it accepts.
std::uint64_t body_of(std::string_view bytes) {
    std::int64_t length = number_at(bytes, 12);
    if (length == -2) {
        const std::int64_t block = static_cast<std::int64_t>(bytes.size()) - number_at(bytes, 8);
        const std::int64_t index = block - 16 * number_at(bytes, 32) - 152;
        if (number_at(bytes, 8) < 0 || number_at(bytes, 32) < 0 || index < 44) {
            return 0;
        }
        const std::int64_t offset = number_at(bytes, index + 52 + 28);
        const auto at = static_cast<std::size_t>(block + offset);
        if (offset > 0 && at < bytes.size()) {
            const auto size = static_cast<std::size_t>(number_at(bytes, index + 14, 2));
            length = std::strtoll(std::string{bytes.substr(at, size)}.c_str(), nullptr, 10);
        }
    }
    return length > 0 ? static_cast<std::uint64_t>(length) : 0;
}

// What a prefix of a stream means, worked out from its start with no memory of how it came.
State meaning_of(std::string_view bytes, bool from_web_server) {
    State state;
    bool body_missing = false;
    while (bytes.size() >= 8) {
        const unsigned type = static_cast<unsigned char>(bytes[2]);
        const std::int64_t length = number_at(bytes, 4);
        const bool request = from_web_server && type == 1;
        if (!bytes.starts_with("LS") || length < (request ? 44 : 8) || (from_web_server && length > 65535)) {
            state.lost = true;
            break;
        }
        if (request) {
            ++state.begun;
            state.head = state.complete = false;
        }
        const auto size = static_cast<std::size_t>(length);
        if (bytes.size() < size) {
            break;
        }
        state.ended += type == 5 && !from_web_server ? 1U : 0U;
        state.close = state.close || (type == 8 && !from_web_server);
        const std::uint64_t body = request ? body_of(bytes.substr(0, size)) : 0;
        state.head = state.head || request;
        bytes.remove_prefix(size);
        body_missing = bytes.size() < body;
        if (body_missing) {
            break;
        }
        bytes.remove_prefix(static_cast<std::size_t>(body));
        state.complete = state.complete || request;
    }
    state.boundary = bytes.empty() && !body_missing && !state.lost;
    state.complete = state.complete && state.boundary;
    return state;
}

State state_of(const RequestScanner& scanner) {
    return {scanner.begun(), scanner.head_complete(), scanner.request_complete(), 0,
            false,           scanner.at_boundary(),   scanner.out_of_step()};
}

State state_of(const ResponseScanner& scanner) {
    return {0,
            false,
            false,
            scanner.ended(),
            scanner.close_announced(),
            scanner.at_boundary(),
            scanner.out_of_step()};
}

// Byte by byte, in two at every byte, and whole.
template <typename Scanner>
void check_every_cut(const std::string& stream) {
    constexpr bool from_web_server = std::is_same_v<Scanner, RequestScanner>;
    Scanner slow;
    std::vector<State> meanings{State{}};
    for (std::size_t i = 0; i < stream.size(); ++i) {
        slow.feed(as_bytes(stream).subspan(i, 1));
        meanings.push_back(meaning_of(std::string_view{stream}.substr(0, i + 1), from_web_server));
        REQUIRE(state_of(slow) == meanings.back());
    }
    every_split(as_bytes(stream), [&](std::span<const Bytes> pieces) {
        Scanner scanner;
        std::size_t seen = 0;
        for (const Bytes piece : pieces) {
            scanner.feed(piece);
            seen += piece.size();
            if (pieces.size() <= 2) {
                REQUIRE(state_of(scanner) == meanings[seen]);
            }
        }
        REQUIRE(state_of(scanner) == meanings.back());
    });
}

void check_requests(const std::string& stream) {
    check_every_cut<RequestScanner>(stream);
}

void check_answers(const std::string& stream) {
    check_every_cut<ResponseScanner>(stream);
}

// The scanner behind a whole packet, and the body that it then waits for.
std::uint64_t body_waited_for(const std::string& bytes) {
    RequestScanner scanner;
    scanner.feed(as_bytes(bytes));
    REQUIRE(scanner.head_complete());
    std::uint64_t body = 0;
    while (!scanner.request_complete() && body < 100'000) {
        scanner.feed(as_bytes("b"));
        ++body;
    }
    return body;
}

}  // namespace

TEST_CASE("an LSAPI request may be cut at every byte") {
    const std::string get = cede::tests::example_request();
    check_requests(get);
    CHECK(meaning_of(get, true) == State{1, true, true, 0, false, true, false});
    check_requests(RawRequest{.big = true}.bytes());
    check_requests(RawRequest{.body_length = 11}.bytes() + "hello world");
    check_requests(RawRequest{.big = true, .body_length = 11}.bytes() + "hello world");
}

TEST_CASE("a body whose length only a header tells is followed, cut at every byte") {
    for (const bool big : {false, true}) {
        RawRequest request = post_request("12", -2, big);
        check_requests(request.bytes() + "hello world!" + cede::tests::example_request());
        CHECK(meaning_of(request.bytes() + "hello world!", true).complete);
        request.special_env = cede::tests::env_entry("\1\4display_errors", "1");
        request.special_env_count = 1;
        request.unknown = {{0, 4, 5, 1}, {0, 4, 5, 1}};
        check_requests(request.bytes() + "hello world!");
    }
}

TEST_CASE("a Content-Length is read as strtoll reads it") {
    CHECK(body_waited_for(post_request("7").bytes()) == 7);
    CHECK(body_waited_for(post_request(" \t\v\f\r\n+0012x9").bytes()) == 12);
    CHECK(body_waited_for(post_request("3 4").bytes()) == 3);
    CHECK(body_waited_for(post_request("5\0"
                                       "9"s)
                              .bytes()) == 5);
    for (const std::string_view nothing : {"", "0", "-5", "- 5", "+-5", "x5", "  "}) {
        CHECK(body_waited_for(post_request(nothing).bytes()) == 0);
        check_requests(post_request(nothing).bytes());
    }
    for (const std::string_view much :
         {"65536", "4294967296", "9223372036854775807", "99999999999999999999"}) {
        check_requests(post_request(much).bytes() + "b");
    }
}

TEST_CASE("an announced length counts whatever the header says") {
    CHECK(body_waited_for(post_request("7", 3).bytes()) == 3);
    CHECK(body_waited_for(post_request("7", 0).bytes()) == 0);
    CHECK(body_waited_for(post_request("7", -1).bytes()) == 0);
    CHECK(body_waited_for(post_request("7", -3).bytes()) == 0);
    CHECK(body_waited_for(post_request("7", std::int64_t{-2147483648}).bytes()) == 0);
    check_requests(post_request("7", 2147483647).bytes() + "b");
}

TEST_CASE("without a Content-Length, or with one outside the block, an unknown length is no body") {
    RawRequest request = post_request("7");
    const std::int64_t offset = request.indexed[1][1];
    for (const std::int64_t wrong :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{-2147483648},
          static_cast<std::int64_t>(request.block.size()), std::int64_t{2147483647}}) {
        request.indexed[1][1] = wrong;
        CHECK(body_waited_for(request.bytes()) == 0);
        check_requests(request.bytes());
    }
    CHECK(body_waited_for(RawRequest{.body_length = -2, .indexed = {{7, 0, 1}}, .block = "9"}.bytes()) == 0);
    request.indexed[1] = {7, offset, 0};
    CHECK(body_waited_for(request.bytes()) == 0);
    request.indexed[1] = {7, offset, 65535};
    CHECK(body_waited_for(request.bytes()) == 7);
}

TEST_CASE("a packet whose parts can not be where they should be has no body and is passed over") {
    const std::string right = post_request("7").bytes();
    for (const std::size_t field : {8U, 32U}) {
        for (const std::int64_t value :
             {std::int64_t{-1}, std::int64_t{2147483647}, std::int64_t{-2147483648}, std::int64_t{100'000}}) {
            std::string wrong = right;
            cede::tests::set_number(wrong, field, value);
            check_requests(wrong + cede::tests::example_request());
        }
    }
}

TEST_CASE("LSAPI requests that follow one another without a pause are counted apart") {
    const std::string get = cede::tests::example_request();
    const std::string post = RawRequest{.body_length = 4}.bytes() + "body";
    check_requests(get + post + packet(2) + get);
    RequestScanner scanner;
    scanner.feed(as_bytes(get + post + get));
    CHECK(scanner.begun() == 3);
}

TEST_CASE("feeding to the boundary stops behind each request and behind each other packet") {
    const std::string get = cede::tests::example_request();
    const std::string post = post_request("4").bytes() + "body";
    const std::string stream = get + post + packet(2) + get;
    RequestScanner scanner;
    Bytes rest = as_bytes(stream);
    for (const std::size_t size : {get.size(), post.size(), std::size_t{8}, get.size()}) {
        const std::size_t half = scanner.feed_to_boundary(rest.first(size / 2));
        CHECK(half == size / 2);
        CHECK_FALSE(scanner.at_boundary());
        rest = rest.subspan(half);
        CHECK(scanner.feed_to_boundary(rest) == size - half);
        CHECK(scanner.at_boundary());
        rest = rest.subspan(size - half);
    }
    CHECK(rest.empty());
    CHECK(scanner.feed_to_boundary({}) == 0);
    CHECK(scanner.begun() == 3);
}

TEST_CASE("the next LSAPI request's first byte ends the claim that the latest is complete") {
    RequestScanner scanner;
    scanner.feed(as_bytes(cede::tests::example_request()));
    CHECK(scanner.request_complete());
    scanner.feed(as_bytes("L"));
    CHECK_FALSE(scanner.request_complete());
    CHECK_FALSE(scanner.at_boundary());
    CHECK(scanner.head_complete());
    scanner.feed(as_bytes(cede::tests::example_request()).subspan(1, 7));
    CHECK_FALSE(scanner.head_complete());
    CHECK(scanner.begun() == 2);
}

TEST_CASE("a header that can not be followed loses the scanner for good") {
    const std::string get = cede::tests::example_request();
    const std::array<std::string, 9> wrong{
        "MS" + packet(1).substr(2), "LT" + packet(1).substr(2), packet_header(1, 43),
        packet_header(1, 65536),    packet_header(1, -1),       packet_header(2, 7),
        packet_header(2, 0),        packet_header(2, 65536),    packet_header(1, 2147483647)};
    for (const std::string& header : wrong) {
        check_requests(get + header + get + get);
        CHECK(meaning_of(get + header + get, true) == State{1, true, false, 0, false, false, true});
    }
    for (const std::string& header :
         {"MS" + packet(5).substr(2), packet_header(5, 7), packet_header(4, -1)}) {
        check_answers(packet(5) + header + packet(5));
        CHECK(meaning_of(packet(5) + header + packet(5), false).ended == 1);
    }
}

TEST_CASE("packets of the least and of the greatest length are followed") {
    check_requests(packet(1, std::string(36, '\0')) + packet(2) + packet(9, "x"));
    RawRequest largest;
    largest.block = std::string(65535 - largest.block_at(), 'x');
    const std::string bytes = largest.bytes() + largest.bytes();
    RequestScanner scanner;
    for (std::size_t at = 0; at < bytes.size(); at += 4093) {
        scanner.feed(as_bytes(bytes).subspan(at, std::min<std::size_t>(4093, bytes.size() - at)));
    }
    CHECK(state_of(scanner) == State{2, true, true, 0, false, true, false});
}

TEST_CASE("an LSAPI answer ends when the last byte of RESP_END has passed and not before") {
    const std::string answer = cede::tests::example_answer();
    check_answers(answer + answer);
    ResponseScanner scanner;
    scanner.feed(as_bytes(answer).first(answer.size() - 1));
    CHECK(scanner.ended() == 0);
    CHECK_FALSE(scanner.at_boundary());
    scanner.feed(as_bytes(answer).last(1));
    CHECK(scanner.ended() == 1);
    CHECK(scanner.at_boundary());
    check_answers(packet(7, "", true) + packet(4, std::string(300, '\5'), true) + packet(5, "", true));
}

TEST_CASE("an announced close is seen behind the answer and alone") {
    check_answers(cede::tests::example_answer() + packet(8));
    check_answers(packet(8));
    ResponseScanner scanner;
    scanner.feed(as_bytes(packet(5) + packet(8)).first(15));
    CHECK_FALSE(scanner.close_announced());
    scanner.feed(as_bytes(packet(8)).last(1));
    CHECK(scanner.close_announced());
}

TEST_CASE("LSAPI content that looks like an end of answer is content") {
    const std::string stream = packet(4, packet(5) + packet(8)) + packet(6, packet(5) + packet(8));
    check_answers(stream);
    CHECK(meaning_of(stream, false) == State{});
}

TEST_CASE("an empty piece changes nothing, wherever it comes in a request") {
    const std::string post = post_request("4").bytes() + "body";
    RequestScanner scanner;
    for (std::size_t i = 0; i < post.size(); ++i) {
        const State before = state_of(scanner);
        scanner.feed({});
        CHECK(state_of(scanner) == before);
        scanner.feed(as_bytes(post).subspan(i, 1));
    }
    CHECK(scanner.request_complete());
}

TEST_CASE("packets with any numbers in them mean the same however they are cut, and harm nothing") {
    std::mt19937 random{7};
    for (int round = 0; round < 300; ++round) {
        std::string stream;
        while (stream.size() < 2000) {
            const bool big = random() % 2 == 0;
            std::string next = post_request(std::to_string(random() % 300), -2, big).bytes();
            if (random() % 2 == 0) {
                next = packet(static_cast<unsigned>(random() % 10), std::string(random() % 100, '\0'), big);
            }
            for (int changes = static_cast<int>(random() % 3); changes > 0; --changes) {
                const std::size_t at = 8 + random() % next.size();
                if (at < next.size()) {
                    next[at] = static_cast<char>(random() % 4 == 0 ? random() : random() % 20);
                }
            }
            stream += next + std::string(random() % 5 == 0 ? random() % 300 : 0, 'b');
        }
        RequestScanner requests;
        ResponseScanner answers;
        std::size_t at = 0;
        while (at < stream.size()) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 200, stream.size() - at);
            requests.feed(as_bytes(stream).subspan(at, size));
            answers.feed(as_bytes(stream).subspan(at, size));
            at += size;
            REQUIRE(state_of(requests) == meaning_of(std::string_view{stream}.substr(0, at), true));
            REQUIRE(state_of(answers) == meaning_of(std::string_view{stream}.substr(0, at), false));
        }
    }
}
