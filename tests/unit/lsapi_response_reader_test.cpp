// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_response_reader.h"

#include <array>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"
#include "tests/support/packets.h"

using namespace cede::protocol;
using namespace cede::protocol::lsapi;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::as_text;
using cede::tests::every_split;
using cede::tests::number;
using cede::tests::packet;
using cede::tests::packet_header;

namespace {

using Pieces = std::span<const Bytes>;

constexpr std::size_t room = 65535;
constexpr std::uint64_t much = 1U << 20U;

struct Answer {
    Outcome outcome = Outcome::need_more;
    std::string events;  // one letter for each that is not a piece of a stream
    std::string body;
    std::string log;
    std::vector<std::string> lines;
    std::int32_t status = -1;
    std::int32_t pid = 0;
    bool untouched = true;
    std::string rest;  // bytes that the reader left alone

    bool operator==(const Answer&) const = default;
};

void take(ResponseEvent event, const ResponseReader& reader, Answer& answer) {
    switch (event) {
        case ResponseEvent::body_bytes:
            CHECK_FALSE(reader.content().empty());
            answer.body += as_text(reader.content());
            break;
        case ResponseEvent::stderr_bytes:
            CHECK_FALSE(reader.content().empty());
            answer.log += as_text(reader.content());
            break;
        case ResponseEvent::received:
            CHECK(reader.acknowledged());
            answer.events += 'r';
            break;
        case ResponseEvent::conn_close:
            answer.events += 'c';
            break;
        case ResponseEvent::head:
            answer.events += 'h';
            answer.status = reader.status();
            answer.lines.clear();
            for (LineCursor lines = reader.lines(); const auto line = lines.next();) {
                answer.lines.emplace_back(*line);
            }
            break;
        default:
            break;
    }
}

Answer read(Pieces pieces, std::uint64_t max_bytes = much, std::size_t storage_size = room) {
    std::vector<std::byte> storage(storage_size);
    ResponseReader reader{storage, max_bytes};
    Answer answer;
    CHECK(reader.untouched());
    for (Bytes piece : pieces) {
        ResponseEvent event = ResponseEvent::need_more;
        while ((event = reader.next(piece)) != ResponseEvent::need_more && event != ResponseEvent::end &&
               event != ResponseEvent::refused) {
            take(event, reader, answer);
        }
        if (event != ResponseEvent::need_more) {
            CHECK(reader.next(piece) == event);
            answer.rest += as_text(piece);
        } else {
            CHECK(piece.empty());
        }
    }
    answer.outcome = reader.outcome();
    answer.pid = reader.pid();
    answer.untouched = reader.untouched();
    return answer;
}

// However the bytes are cut, the answer is the same, up to what was left alone when it is refused.
Answer read(const std::string& bytes, std::uint64_t max_bytes = much, std::size_t storage_size = room) {
    const std::array<Bytes, 1> whole{as_bytes(bytes)};
    const Answer first = read(whole, max_bytes, storage_size);
    if (bytes.size() < 2000) {
        every_split(as_bytes(bytes),
                    [&](Pieces pieces) { CHECK(read(pieces, max_bytes, storage_size) == first); });
    }
    return first;
}

Outcome outcome_of(const std::string& bytes, std::uint64_t max_bytes = much,
                   std::size_t storage_size = room) {
    return read(bytes, max_bytes, storage_size).outcome;
}

// RESP_HEADER with the lines as they are, NULs and all.
std::string head(const std::vector<std::string>& lines, std::int64_t status = 200, bool big = false) {
    std::string content = number(static_cast<std::int64_t>(lines.size()), 4, big) + number(status, 4, big);
    for (const std::string& line : lines) {
        content += number(static_cast<std::int64_t>(line.size()), 2, big);
    }
    for (const std::string& line : lines) {
        content += line;
    }
    return packet(3, content, big);
}

}  // namespace

TEST_CASE("the worked example of an answer cut at every byte is read as the web server reads it") {
    const Answer answer = read(cede::tests::example_answer() + "next");
    CHECK(answer.outcome == Outcome::done);
    CHECK(answer.events == "rh");
    CHECK(answer.status == 200);
    CHECK(answer.lines == std::vector{"Content-type: text/plain"s});
    CHECK(answer.body == "hi");
    CHECK(answer.log.empty());
    CHECK(answer.rest == "next");
}

TEST_CASE("an answer is read in both orders of numbers, also changing from packet to packet") {
    for (const bool big : {false, true}) {
        const Answer answer =
            read(packet(7, "", big) + head({"A: b\0"s, "\0"s, "C: d\0"s}, 404, big) + packet(4, "body", big) +
                 packet(6, "log", !big) + packet(4, " more", !big) + packet(5, "", big));
        CHECK(answer.outcome == Outcome::done);
        CHECK(answer.events == "rh");
        CHECK(answer.status == 404);
        CHECK(answer.lines == std::vector{"A: b"s, ""s, "C: d"s});
        CHECK(answer.body == "body more");
        CHECK(answer.log == "log");
    }
}

TEST_CASE("an answer is complete only with the last byte of RESP_END") {
    const std::string bytes = cede::tests::example_answer();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const std::string part = bytes.substr(0, size);
        const std::array<Bytes, 1> pieces{as_bytes(part)};
        const Answer answer = read(pieces);
        CHECK(answer.outcome == Outcome::need_more);
        CHECK(answer.untouched == (size == 0));
    }
}

TEST_CASE("a pid on the log is an acknowledgement, anything else of 8 bytes is for the log") {
    for (const bool big : {false, true}) {
        const Answer answer = read(packet(6, "\0PID"s + number(4711, 4, big), big) + packet(5));
        CHECK(answer.events == "r");
        CHECK(answer.pid == 4711);
        CHECK(answer.log.empty());
    }
    for (const std::string& text : {"\0PIX1234"s, "12345678"s, "\0PID123"s, "\0PID12345"s}) {
        const Answer answer = read(packet(6, text) + packet(5));
        CHECK(answer.events.empty());
        CHECK(answer.log == text);
        CHECK(answer.pid == 0);
    }
}

TEST_CASE("a close is announced between two answers, within one and behind one") {
    CHECK(read(packet(8)).events == "c");
    CHECK(read(packet(8)).untouched);
    CHECK_FALSE(read(packet(7)).untouched);
    const Answer within = read(packet(7) + packet(8) + head({}) + packet(5));
    CHECK(within.events == "rch");
    CHECK(within.outcome == Outcome::done);
    const Answer behind = read(packet(5) + packet(8));
    CHECK(behind.events.empty());
    CHECK(behind.rest == packet(8));
}

TEST_CASE("what carries nothing says nothing") {
    const Answer answer = read(packet(4) + packet(6) + packet(9) + packet(7, "payload") + packet(5));
    CHECK(answer.outcome == Outcome::done);
    CHECK(answer.events == "r");
    CHECK(answer.body.empty());
    CHECK(answer.log.empty());
}

TEST_CASE("a response header may come again before the body and not behind it") {
    const Answer twice = read(head({"A: b\0"s}) + head({"C: d\0"s}, 500) + packet(4) + packet(6, "log") +
                              head({}, 201) + packet(4, "x") + packet(5));
    CHECK(twice.outcome == Outcome::done);
    CHECK(twice.events == "hhh");
    CHECK(twice.status == 201);
    CHECK(outcome_of(head({}) + packet(4, "x") + head({}) + packet(5)) == Outcome::head_after_body);
}

TEST_CASE("packets that PHP may not send are refused") {
    CHECK(outcome_of("MS" + packet(5).substr(2)) == Outcome::bad_magic);
    CHECK(outcome_of("LT" + packet(8).substr(2)) == Outcome::bad_magic);
    for (const unsigned type : {0U, 1U, 2U, 10U, 255U}) {
        CHECK(outcome_of(packet(type)) == Outcome::unexpected_type);
    }
    CHECK(outcome_of(packet(9, "x")) == Outcome::unexpected_type);
}

TEST_CASE("each type of packet has its lengths") {
    const auto outcome = [](unsigned type, std::int64_t content) {
        return outcome_of(packet_header(type, 8 + content));
    };
    for (const unsigned type : {4U, 6U, 7U}) {
        CHECK(outcome(type, 0) == Outcome::need_more);
        CHECK(outcome(type, 16384) == Outcome::need_more);
        CHECK(outcome(type, 16385) == Outcome::bad_packet_size);
    }
    CHECK(outcome(3, 7) == Outcome::bad_packet_size);
    CHECK(outcome(3, 8) == Outcome::need_more);
    CHECK(outcome(3, 65535) == Outcome::need_more);
    CHECK(outcome(3, 65536) == Outcome::bad_packet_size);
    CHECK(outcome(5, 0) == Outcome::done);
    CHECK(outcome(5, 1) == Outcome::bad_packet_size);
    CHECK(outcome(8, 1) == Outcome::bad_packet_size);
    for (const unsigned type : {3U, 4U, 5U, 6U, 7U, 8U, 9U}) {
        for (const std::int64_t length :
             {std::int64_t{7}, std::int64_t{0}, std::int64_t{-1}, std::int64_t{-2147483648}}) {
            CHECK(outcome_of(packet_header(type, length)) == Outcome::bad_packet_size);
        }
    }
}

TEST_CASE("the largest packets are read whole") {
    const std::string data(16384, 'd');
    const std::string line = std::string(32766, 'l') + '\0';
    const Answer answer =
        read(head({line, std::string(32754, 'm') + '\0'}) + packet(4, data) + packet(6, data) + packet(5));
    CHECK(answer.outcome == Outcome::done);
    CHECK(answer.lines[0] == line.substr(0, 32766));
    CHECK(answer.body == data);
    CHECK(answer.log == data);
}

TEST_CASE("a response header must be what its numbers say") {
    CHECK(outcome_of(head({})) == Outcome::need_more);
    CHECK(outcome_of(head({"A: b\0"s})) == Outcome::need_more);
    CHECK(outcome_of(head({"A: b"s})) == Outcome::bad_entry);  // no NUL
    CHECK(outcome_of(head({""s})) == Outcome::bad_entry);      // not even the NUL
    CHECK(outcome_of(packet(3, number(1, 4) + number(0, 4) + "\4\0abc"s)) == Outcome::bad_entry);
    CHECK(outcome_of(packet(3, number(1, 4) + number(0, 4) + "\3\0ab\0"s + "x")) == Outcome::size_mismatch);
    CHECK(outcome_of(packet(3, number(1, 4) + number(0, 4) + "\3"s)) == Outcome::size_mismatch);
    CHECK(outcome_of(packet(3, number(0, 4) + number(0, 4) + "x"s)) == Outcome::size_mismatch);
    for (const std::int64_t count :
         {std::int64_t{-1}, std::int64_t{-2147483648}, std::int64_t{4096}, std::int64_t{2147483647}}) {
        CHECK(outcome_of(packet(3, number(count, 4) + number(0, 4) + std::string(9000, '\0'))) ==
              Outcome::too_many_lines);
    }
    const std::vector<std::string> most(4095, "\0"s);
    CHECK(read(head(most)).lines.size() == 4095);
    CHECK(outcome_of(head({std::string(32767, 'l') + '\0'})) == Outcome::bad_entry);  // negative as an int16
}

TEST_CASE("a response header larger than its space is refused before a byte of it is stored") {
    const std::string bytes = head({"A: b\0"s});
    CHECK(outcome_of(bytes, much, bytes.size() - 8) == Outcome::need_more);
    CHECK(outcome_of(bytes, much, bytes.size() - 9) == Outcome::head_too_large);
    CHECK(outcome_of(packet_header(3, 16), much, 0) == Outcome::head_too_large);
}

TEST_CASE("body and log together may be as large as allowed, a pid not counted") {
    const std::string ack = packet(6, "\0PID\1\2\3\4"s);
    CHECK(outcome_of(packet(4, "12345"), 5) == Outcome::need_more);
    CHECK(outcome_of(packet(4, "12345"), 4) == Outcome::stream_too_large);
    CHECK(outcome_of(packet(4, "12") + packet(6, "345"), 5) == Outcome::need_more);
    CHECK(outcome_of(packet(4, "12") + packet(6, "345"), 4) == Outcome::stream_too_large);
    CHECK(outcome_of(ack + packet(4, "12345"), 5) == Outcome::need_more);
    CHECK(outcome_of(packet(6, "12345678"), 8) == Outcome::need_more);
    CHECK(outcome_of(packet(6, "12345678"), 7) == Outcome::stream_too_large);
}

TEST_CASE("answers with any bytes in them are read or refused alike however they are cut") {
    std::mt19937 random{13};
    for (int round = 0; round < 300; ++round) {
        std::string bytes = cede::tests::example_answer();
        if (round % 2 == 0) {
            bytes = packet(6, "\0PID1234"s) + head({"A: b\0"s, "C: d\0"s}) + packet(8) + packet(5);
        }
        for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
            bytes[random() % bytes.size()] = static_cast<char>(random() % 2 == 0 ? random() % 12 : random());
        }
        CHECK(read(bytes, 100, 40).body.size() <= 100);
    }
}
