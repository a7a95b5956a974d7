// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_scanner.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"
#include "tests/support/packets.h"

using namespace cede::protocol::lsapi;
using cede::protocol::Bytes;
using cede::tests::as_bytes;
using cede::tests::every_split;
using cede::tests::packet;
using cede::tests::packet_header;

namespace {

struct State {
    std::uint64_t ended = 0;
    bool close = false;
    bool boundary = true;
    bool lost = false;

    bool operator==(const State&) const = default;
};

std::int64_t length_of(std::string_view bytes) {
    const bool big = order_of(static_cast<std::uint8_t>(bytes[3])) == std::endian::big;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        value = value << 8U | static_cast<unsigned char>(bytes[4 + (big ? i : 3 - i)]);
    }
    return static_cast<std::int32_t>(value);
}

// What a prefix of a stream means, worked out from its start with no memory of how it came.
State meaning_of(std::string_view bytes) {
    State state;
    while (bytes.size() >= 8) {
        const unsigned type = static_cast<unsigned char>(bytes[2]);
        const std::int64_t length = length_of(bytes);
        if (!bytes.starts_with("LS") || length < 8) {
            state.lost = true;
            break;
        }
        const auto size = static_cast<std::size_t>(length);
        if (bytes.size() < size) {
            break;
        }
        state.ended += type == 5 ? 1U : 0U;
        state.close = state.close || type == 8;
        bytes.remove_prefix(size);
    }
    state.boundary = bytes.empty() && !state.lost;
    return state;
}

State state_of(const ResponseScanner& scanner) {
    return {scanner.ended(), scanner.close_announced(), scanner.at_boundary(), scanner.out_of_step()};
}

// Byte by byte, in two at every byte, and whole.
void check_every_cut(const std::string& stream) {
    ResponseScanner slow;
    std::vector<State> meanings{State{}};
    for (std::size_t i = 0; i < stream.size(); ++i) {
        slow.feed(as_bytes(stream).subspan(i, 1));
        meanings.push_back(meaning_of(std::string_view{stream}.substr(0, i + 1)));
        REQUIRE(state_of(slow) == meanings.back());
    }
    every_split(as_bytes(stream), [&](std::span<const Bytes> pieces) {
        ResponseScanner scanner;
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

}  // namespace

TEST_CASE("an LSAPI answer ends when the last byte of RESP_END has passed and not before") {
    const std::string answer = cede::tests::example_answer();
    check_every_cut(answer + answer);
    ResponseScanner scanner;
    scanner.feed(as_bytes(answer).first(answer.size() - 1));
    CHECK(scanner.ended() == 0);
    CHECK_FALSE(scanner.at_boundary());
    scanner.feed(as_bytes(answer).last(1));
    CHECK(scanner.ended() == 1);
    CHECK(scanner.at_boundary());
    check_every_cut(packet(7, "", true) + packet(4, std::string(300, '\5'), true) + packet(5, "", true));
}

TEST_CASE("an announced close is seen behind the answer and alone") {
    check_every_cut(cede::tests::example_answer() + packet(8));
    check_every_cut(packet(8));
    ResponseScanner scanner;
    scanner.feed(as_bytes(packet(5) + packet(8)).first(15));
    CHECK_FALSE(scanner.close_announced());
    scanner.feed(as_bytes(packet(8)).last(1));
    CHECK(scanner.close_announced());
}

TEST_CASE("LSAPI content that looks like an end of answer is content") {
    const std::string stream = packet(4, packet(5) + packet(8)) + packet(6, packet(5) + packet(8));
    check_every_cut(stream);
    CHECK(meaning_of(stream) == State{});
}

TEST_CASE("a header that can not be followed loses the scanner for good") {
    for (const std::string& header : {"MS" + packet(5).substr(2), "LT" + packet(5).substr(2),
                                      packet_header(5, 7), packet_header(4, -1), packet_header(5, 0)}) {
        check_every_cut(packet(5) + header + packet(5));
        CHECK(meaning_of(packet(5) + header + packet(5)) == State{1, false, false, true});
    }
}

TEST_CASE("an empty piece changes nothing, wherever it comes in an answer") {
    const std::string answer = cede::tests::example_answer();
    ResponseScanner scanner;
    for (std::size_t i = 0; i < answer.size(); ++i) {
        const State before = state_of(scanner);
        scanner.feed({});
        CHECK(state_of(scanner) == before);
        scanner.feed(as_bytes(answer).subspan(i, 1));
    }
    CHECK(scanner.ended() == 1);
}

TEST_CASE("packets with any numbers in them mean the same however they are cut, and harm nothing") {
    std::mt19937 random{7};
    for (int round = 0; round < 300; ++round) {
        std::string stream;
        while (stream.size() < 2000) {
            std::string next = packet(static_cast<unsigned>(random() % 10), std::string(random() % 100, '\0'),
                                      random() % 2 == 0);
            if (random() % 20 == 0) {
                next[random() % 8] = static_cast<char>(random());
            }
            stream += next;
        }
        ResponseScanner scanner;
        std::size_t at = 0;
        while (at < stream.size()) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 200, stream.size() - at);
            scanner.feed(as_bytes(stream).subspan(at, size));
            at += size;
            REQUIRE(state_of(scanner) == meaning_of(std::string_view{stream}.substr(0, at)));
        }
    }
}
