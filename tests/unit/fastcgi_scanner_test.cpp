// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_scanner.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"
#include "tests/support/records.h"

using namespace cede::protocol::fastcgi;
using namespace std::string_literals;
using cede::protocol::Bytes;
using cede::tests::as_bytes;
using cede::tests::begin_record;
using cede::tests::end_record;
using cede::tests::every_split;
using cede::tests::record;

namespace {

struct State {
    std::uint64_t begun = 0;
    std::uint64_t heads = 0;
    std::uint64_t ended = 0;
    bool head = false;
    bool complete = false;
    bool boundary = true;

    bool operator==(const State&) const = default;
};

std::size_t number(char high, char low) {
    return std::size_t{static_cast<unsigned char>(high)} * 256 + static_cast<unsigned char>(low);
}

// What a prefix of a stream means, worked out from its start with no memory of how it came.
State meaning_of(std::string_view bytes) {
    State state;
    while (bytes.size() >= 8) {
        const unsigned type = static_cast<unsigned char>(bytes[1]);
        const std::size_t content = number(bytes[4], bytes[5]);
        const std::size_t size = 8 + content + number(0, bytes[6]);
        if (type == 1) {
            ++state.begun;
            state.head = state.complete = false;
        }
        const bool had_head = state.head;
        state.head = state.head || type == 5;
        state.heads += state.head && !had_head && state.begun > 0;
        if (bytes.size() < size) {
            break;
        }
        bytes.remove_prefix(size);
        state.ended += type == 3;
        if (content == 0 && (type == 4 || type == 5)) {
            state.heads += !state.head && state.begun > 0;
            state.head = true;
            state.complete = state.complete || type == 5;
        }
    }
    state.boundary = bytes.empty();
    state.complete = state.complete && state.boundary;
    return state;
}

class BothScanners {
  public:
    void feed(Bytes bytes) {
        in_.feed(bytes);
        out_.feed(bytes);
    }
    [[nodiscard]] State state() const {
        CHECK(in_.at_boundary() == out_.at_boundary());
        return {in_.begun(),      in_.heads(), out_.ended(), in_.head_complete(), in_.request_complete(),
                in_.at_boundary()};
    }

  private:
    RequestScanner in_;
    ResponseScanner out_;
};

// Byte by byte, in two at every byte, and whole.
void check_every_cut(const std::string& stream) {
    BothScanners slow;
    for (std::size_t i = 0; i < stream.size(); ++i) {
        slow.feed(as_bytes(stream).subspan(i, 1));
        REQUIRE(slow.state() == meaning_of(std::string_view{stream}.substr(0, i + 1)));
    }
    every_split(as_bytes(stream), [&](std::span<const Bytes> pieces) {
        BothScanners scanners;
        std::size_t seen = 0;
        for (const Bytes piece : pieces) {
            scanners.feed(piece);
            seen += piece.size();
            if (pieces.size() <= 2) {
                REQUIRE(scanners.state() == meaning_of(std::string_view{stream}.substr(0, seen)));
            }
        }
        REQUIRE(scanners.state() == meaning_of(stream));
    });
}

}  // namespace

TEST_CASE("a request may be cut at every byte") {
    const std::string get = begin_record(true) + record(4, "\4\1NAMEv", 1) + record(4, "") + record(5, "");
    const std::string post = begin_record(false, 3) + record(4, "\4\1NAMEv") + record(4, "\1\1Nv", 7) +
                             record(4, "") + record(5, "body", 4) + record(5, "more") + record(5, "");
    check_every_cut(get);
    check_every_cut(post);
    CHECK(meaning_of(get) == State{1, 1, 0, true, true, true});
}

TEST_CASE("requests that follow one another without a pause are counted apart") {
    const std::string get = begin_record(true) + record(4, "\4\1NAMEv") + record(4, "") + record(5, "");
    check_every_cut(get + get + get);
    BothScanners scanners;
    scanners.feed(as_bytes(get + get + get));
    CHECK(scanners.state().begun == 3);
}

TEST_CASE("the next request's first byte ends the claim that the latest is complete") {
    const std::string get = begin_record(true) + record(4, "") + record(5, "");
    RequestScanner scanner;
    scanner.feed(as_bytes(get));
    CHECK(scanner.request_complete());
    scanner.feed(as_bytes("\1"));
    CHECK_FALSE(scanner.request_complete());
    CHECK_FALSE(scanner.at_boundary());
    CHECK(scanner.head_complete());
    scanner.feed(as_bytes(begin_record(true)).subspan(1));
    CHECK_FALSE(scanner.request_complete());
    CHECK_FALSE(scanner.head_complete());
    CHECK(scanner.begun() == 2);
}

TEST_CASE("a rest of the request before, which another child had answered, begins nothing") {
    RequestScanner scanner;
    scanner.feed(as_bytes(record(5, "")));
    CHECK(scanner.begun() == 0);
    CHECK(scanner.heads() == 0);
    CHECK(scanner.at_boundary());
}

TEST_CASE("management records are neither requests nor answers") {
    const std::string stream = record(9, cede::tests::pair("FCGI_MPXS_CONNS", ""), 0, 0) +
                               record(10, cede::tests::pair("FCGI_MPXS_CONNS", "0"), 0, 0) +
                               record(11, std::string(8, '\0'), 0, 0) + record(2, "");
    check_every_cut(stream);
    CHECK(meaning_of(stream) == State{0, 0, 0, false, false, true});
    check_every_cut(begin_record(true) + stream + record(4, "") + stream + record(5, "") + end_record());
}

TEST_CASE("padding of every length belongs to its record") {
    for (unsigned padding = 0; padding <= 255; ++padding) {
        const std::string stream = begin_record(true, padding) + record(4, "\1\1Nv", padding) +
                                   record(4, "", padding) + record(5, "", padding) + end_record(padding);
        BothScanners whole;
        whole.feed(as_bytes(stream));
        REQUIRE(whole.state() == meaning_of(stream));
        BothScanners cut;
        for (std::size_t i = 0; i < stream.size(); ++i) {
            cut.feed(as_bytes(stream).subspan(i, 1));
            REQUIRE(cut.state() == meaning_of(std::string_view{stream}.substr(0, i + 1)));
        }
    }
}

TEST_CASE("an end of answer counts when its last byte has passed and not before") {
    const std::string answer = record(6, "Status: 200\r\n\r\nhi", 2) + end_record();
    check_every_cut(answer);
    ResponseScanner scanner;
    scanner.feed(as_bytes(answer).first(answer.size() - 1));
    CHECK(scanner.ended() == 0);
    scanner.feed(as_bytes(answer).last(1));
    CHECK(scanner.ended() == 1);
}

TEST_CASE("an answer in one write and in three is the same answer") {
    const std::string data = record(6, std::string(300, 'd'), 4);
    const std::string end = end_record();
    ResponseScanner one;
    one.feed(as_bytes(data + end));
    ResponseScanner three;
    three.feed(as_bytes(data).first(8));
    three.feed(as_bytes(data).subspan(8));
    CHECK(three.ended() == 0);
    three.feed(as_bytes(end));
    CHECK(one.ended() == 1);
    CHECK(three.ended() == 1);
    CHECK(one.at_boundary());
    CHECK(three.at_boundary());
}

TEST_CASE("content that looks like an end of answer is content") {
    const std::string stream = record(6, end_record() + end_record()) + record(7, end_record());
    check_every_cut(stream);
    CHECK(meaning_of(stream).ended == 0);
}

TEST_CASE("records of the greatest size are followed to their end") {
    const std::string stream = record(6, std::string(65535, '\3'), 255) + end_record(255);
    ResponseScanner scanner;
    for (std::size_t at = 0; at < stream.size(); at += 4093) {
        scanner.feed(as_bytes(stream).subspan(at, std::min<std::size_t>(4093, stream.size() - at)));
        CHECK(scanner.at_boundary() == meaning_of(std::string_view{stream}.substr(0, at + 4093)).boundary);
    }
    CHECK(scanner.ended() == 1);
    CHECK(scanner.at_boundary());
}

TEST_CASE("an empty piece changes nothing, wherever it comes") {
    const std::string get = begin_record(true) + record(4, "") + record(5, "");
    BothScanners scanners;
    for (std::size_t i = 0; i < get.size(); ++i) {
        const State before = scanners.state();
        scanners.feed({});
        CHECK(scanners.state() == before);
        scanners.feed(as_bytes(get).subspan(i, 1));
    }
    CHECK(scanners.state() == meaning_of(get));
}

TEST_CASE("garbage means the same however it is cut, and harms nothing") {
    std::mt19937 random{7};
    for (int round = 0; round < 200; ++round) {
        std::string garbage(1 + random() % 3000, '\0');
        std::ranges::generate(garbage, [&] {
            // Small numbers often, so that lengths stay short and many records fit.
            return static_cast<char>(random() % 3 == 0 ? random() % 256 : random() % 6);
        });
        BothScanners scanners;
        std::size_t at = 0;
        while (at < garbage.size()) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 200, garbage.size() - at);
            scanners.feed(as_bytes(garbage).subspan(at, size));
            at += size;
            REQUIRE(scanners.state() == meaning_of(std::string_view{garbage}.substr(0, at)));
        }
    }
}

TEST_CASE("a body that begins without the end of the parameters completes the head, as PHP has it") {
    RequestScanner scanner;
    scanner.feed(as_bytes(begin_record(true)));
    CHECK_FALSE(scanner.head_complete());
    const std::string body = record(5, "body");
    scanner.feed(as_bytes(body).first(8));
    CHECK(scanner.head_complete());
    CHECK_FALSE(scanner.request_complete());
}
