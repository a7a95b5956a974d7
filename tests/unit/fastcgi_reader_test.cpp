// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/fastcgi_writer.h"
#include "tests/support/every_split.h"

using namespace cede::protocol;
using namespace cede::protocol::fastcgi;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::as_text;
using cede::tests::every_split;

namespace {

using Pieces = std::span<const Bytes>;

std::string record(RecordType type, std::uint16_t id, std::string_view content, std::uint8_t padding = 0,
                   std::uint8_t version = version_1) {
    std::string out(header_size, '\0');
    const MutableBytes header = std::as_writable_bytes(std::span{out});
    put_u8(header, 0, version);
    put_u8(header, 1, static_cast<std::uint8_t>(type));
    put_u16_be(header, 2, id);
    put_u16_be(header, 4, static_cast<std::uint16_t>(content.size()));
    put_u8(header, 6, padding);
    return out.append(content).append(padding, '\xaa');
}

struct Record {
    RecordHeader header;
    std::string content;
    bool ended = false;
};

std::vector<Record> read_records(RecordReader& reader, Pieces pieces) {
    std::vector<Record> records;
    for (Bytes piece : pieces) {
        for (;;) {
            const RecordEvent event = reader.next(piece);
            if (event == RecordEvent::need_more) {
                CHECK(piece.empty());
                break;
            }
            if (event == RecordEvent::header) {
                records.push_back({reader.header(), {}});
            } else if (event == RecordEvent::content) {
                CHECK_FALSE(reader.content().empty());
                records.back().content += as_text(reader.content());
            } else {
                records.back().ended = true;
            }
        }
    }
    return records;
}

struct Pairs {
    Outcome outcome = Outcome::need_more;
    std::vector<std::pair<std::string, std::string>> pairs;
};

Pairs read_pairs(Pieces pieces, std::size_t storage_size, NameValueLimits limits = {}) {
    std::vector<std::byte> storage(storage_size);
    NameValueReader reader{storage, limits};
    Pairs result;
    for (Bytes piece : pieces) {
        while ((result.outcome = reader.next(piece)) == Outcome::done) {
            result.pairs.emplace_back(as_text(reader.name()), as_text(reader.value()));
        }
        if (result.outcome != Outcome::need_more) {
            CHECK(reader.next(piece) == result.outcome);
            break;
        }
    }
    result.outcome = reader.finish();
    return result;
}

Pairs read_pairs(std::string_view stream, std::size_t storage_size, NameValueLimits limits = {}) {
    const std::array<Bytes, 1> pieces{as_bytes(stream)};
    return read_pairs(pieces, storage_size, limits);
}

struct Response {
    Outcome outcome = Outcome::need_more;
    std::string out;
    std::string err;
    std::uint32_t app_status = 0;
    ProtocolStatus status = ProtocolStatus::request_complete;
    std::string rest;  // bytes that the reader left alone
};

Response read_response(Pieces pieces, std::uint16_t id, std::uint64_t max_bytes = 1U << 20U) {
    ResponseReader reader{id, max_bytes};
    Response result;
    CHECK(reader.untouched());
    for (Bytes piece : pieces) {
        ResponseEvent event = ResponseEvent::need_more;
        while ((event = reader.next(piece)) == ResponseEvent::stdout_bytes ||
               event == ResponseEvent::stderr_bytes) {
            (event == ResponseEvent::stdout_bytes ? result.out : result.err) += as_text(reader.content());
        }
        if (event != ResponseEvent::need_more) {
            CHECK(reader.next(piece) == event);
            result.rest += as_text(piece);
        }
    }
    result.outcome = reader.outcome();
    result.app_status = reader.app_status();
    result.status = reader.protocol_status();
    return result;
}

Outcome response_outcome(const std::string& bytes, std::uint64_t max_bytes = 1U << 20U) {
    Outcome first = Outcome::need_more;
    every_split(as_bytes(bytes), [&](Pieces pieces) {
        const Outcome outcome = read_response(pieces, 1, max_bytes).outcome;
        if (first == Outcome::need_more) {
            first = outcome;
        }
        CHECK(outcome == first);
    });
    return first;
}

constexpr auto end_type = RecordType::end_request;
constexpr auto out_type = RecordType::stdout_stream;
constexpr auto err_type = RecordType::stderr_stream;
const std::string end_body = "\0\0\0\0\0\x51\x52\x53"s;  // with stale reserved bytes, as PHP sends them

}  // namespace

TEST_CASE("records cut at every byte come out as they went in") {
    const std::string stream =
        record(RecordType::begin_request, 7, "\0\1\1\0\0\0\0\0"s, 3) + record(RecordType::params, 7, "") +
        record(RecordType{200}, 65535, "x", 255, 9) + record(RecordType::abort_request, 0, "", 1);
    every_split(as_bytes(stream), [](Pieces pieces) {
        RecordReader reader;
        const auto records = read_records(reader, pieces);
        REQUIRE(records.size() == 4);
        CHECK(records[0].content == "\0\1\1\0\0\0\0\0"s);
        CHECK(records[1].header.type == RecordType::params);
        CHECK(records[1].content.empty());
        CHECK(records[2].header.version == 9);
        CHECK(records[2].header.request_id == 65535);
        CHECK(records[2].content == "x");
        CHECK(std::ranges::all_of(records, &Record::ended));
        CHECK(reader.between_records());
    });
}

TEST_CASE("a record cut short never ends and leaves the reader inside it") {
    const std::string whole = record(RecordType::stdin_stream, 1, "abc", 2);
    for (std::size_t size = 1; size < whole.size(); ++size) {
        const std::string part = whole.substr(0, size);
        const std::array<Bytes, 1> pieces{as_bytes(part)};
        RecordReader reader;
        const auto records = read_records(reader, pieces);
        CHECK_FALSE(reader.between_records());
        CHECK(records.size() == (size < header_size ? 0 : 1));
        CHECK(std::ranges::none_of(records, &Record::ended));
    }
}

TEST_CASE("a record of the largest size is read whole") {
    const std::string content(max_content, 'c');
    const std::string bytes = record(RecordType::stdin_stream, 1, content, 255);
    CHECK(bytes.size() == max_record);
    RecordReader reader;
    const std::array<Bytes, 1> pieces{as_bytes(bytes)};
    const auto records = read_records(reader, pieces);
    REQUIRE(records.size() == 1);
    CHECK(records[0].content == content);
    CHECK(records[0].ended);
}

TEST_CASE("pairs cut at every byte come out as they went in") {
    const std::string long_value(130, 'v');
    const std::string stream = "\4\3NAMEval"s + "\0\0"s + "\1\x80\0\0\x82n"s + long_value + "\x80\0\0\1\0q"s;
    every_split(as_bytes(stream), [&](Pieces pieces) {
        const Pairs read = read_pairs(pieces, 131);
        CHECK(read.outcome == Outcome::done);
        REQUIRE(read.pairs.size() == 4);
        CHECK(read.pairs[0] == std::pair{"NAME"s, "val"s});
        CHECK(read.pairs[1] == std::pair{""s, ""s});
        CHECK(read.pairs[2] == std::pair{"n"s, long_value});
        CHECK(read.pairs[3] == std::pair{"q"s, ""s});
    });
}

TEST_CASE("a pair whose lengths would overflow 32 bits is refused before anything is stored (F66)") {
    const std::array<std::string, 4> streams = {
        "\xff\xff\xff\xff\xff\xff\xff\xff"s + "name",  // 2 x 0x7fffffff
        "\xff\xff\xff\xff\x80\0\0\1"s,                 // the sum is exactly 0x80000000
        "\xff\xff\xff\xff\x01"s,                       // only the name is too large
        "\1\xff\xff\xff\xff"s,                         // only the value is
    };
    for (const std::string& stream : streams) {
        every_split(as_bytes(stream), [](Pieces pieces) {
            const Pairs read = read_pairs(pieces, 64, {.stream_bytes = ~std::uint64_t{0}, .pairs = 10});
            CHECK(read.outcome == Outcome::name_value_too_large);
            CHECK(read.pairs.empty());
        });
    }
}

TEST_CASE("small lengths in the four-byte form are read as small lengths (F66)") {
    const Pairs read = read_pairs("\x80\0\0\0\x80\0\0\0\x80\0\0\1\x80\0\0\2nvv"s, 3);
    CHECK(read.outcome == Outcome::done);
    REQUIRE(read.pairs.size() == 2);
    CHECK(read.pairs[0] == std::pair{""s, ""s});
    CHECK(read.pairs[1] == std::pair{"n"s, "vv"s});
}

TEST_CASE("a stream that ends inside a pair is truncated, wherever it ends (F66)") {
    const std::string stream = "\x80\0\0\1\x80\0\0\2nvv"s;
    for (std::size_t size = 1; size < stream.size(); ++size) {
        CHECK(read_pairs(stream.substr(0, size), 3).outcome == Outcome::truncated);
    }
    CHECK(read_pairs("\x64\1only a few of a hundred"s, 128).outcome == Outcome::truncated);
}

TEST_CASE("ten thousand pairs of zero length are read, one more than the limit is refused (F66)") {
    const std::string stream(20'000, '\0');
    CHECK(read_pairs(stream, 0, {.stream_bytes = 20'000, .pairs = 10'000}).pairs.size() == 10'000);
    const Pairs read = read_pairs(stream, 0, {.stream_bytes = 20'000, .pairs = 9'999});
    CHECK(read.outcome == Outcome::too_many_pairs);
    CHECK(read.pairs.size() == 9'999);
}

TEST_CASE("a stream of pairs larger than the limit is refused, in lengths as in bodies") {
    const std::string pair = "\2\2nnvv"s;
    CHECK(read_pairs(pair + pair, 4, {.stream_bytes = 12, .pairs = 9}).outcome == Outcome::done);
    CHECK(read_pairs(pair + pair, 4, {.stream_bytes = 11, .pairs = 9}).outcome == Outcome::stream_too_large);
    CHECK(read_pairs("\0\0\0\0"s, 4, {.stream_bytes = 3, .pairs = 9}).outcome == Outcome::stream_too_large);
}

TEST_CASE("every size of parameters cut into every size of record parses to the same pairs (F67)") {
    for (const std::size_t total : {8'184UL, 8'192UL, 16'384UL, 65'535UL, 65'536UL, 200'000UL}) {
        const std::string name(150, 'n');
        const std::string filler(total - 8 - 150 - 4, 'f');
        const std::array<NameValue, 2> pairs{{{"A", "b"}, {name, filler}}};
        REQUIRE(encoded_size(pairs) == total);
        for (const std::size_t cut : {1UL, 7UL, 8UL, 255UL, 4'096UL, 65'535UL}) {
            for (const unsigned padding : {0U, 1U, 7U, 255U}) {
                const RecordLayout layout{.max_content = cut, .padding = static_cast<std::uint8_t>(padding)};
                std::vector<std::byte> bytes(records_size(total, layout));
                REQUIRE(write_params(bytes, 1, pairs, layout) == bytes.size());
                RecordReader reader;
                const Bytes whole{bytes};
                std::vector<Bytes> contents;
                for (Bytes input = whole;;) {
                    const RecordEvent event = reader.next(input);
                    if (event == RecordEvent::need_more) {
                        break;
                    }
                    if (event == RecordEvent::content) {
                        contents.push_back(reader.content());
                    }
                }
                const Pairs read = read_pairs(contents, total, {.stream_bytes = total, .pairs = 2});
                CHECK(read.outcome == Outcome::done);
                REQUIRE(read.pairs.size() == 2);
                CHECK(read.pairs[0] == std::pair{"A"s, "b"s});
                CHECK(read.pairs[1] == std::pair{name, filler});
                CHECK(read_pairs(contents, total, {.stream_bytes = total - 1, .pairs = 2}).outcome ==
                      Outcome::stream_too_large);
                CHECK(read_pairs(contents, 1'000, {}).outcome == Outcome::name_value_too_large);
            }
        }
    }
}

TEST_CASE("a response cut at every byte gives its streams, its status and nothing of what follows") {
    const std::string bytes = record(err_type, 1, "warning", 1) + record(out_type, 1, "head", 4) +
                              record(out_type, 1, "body") + record(out_type, 1, "") +
                              record(err_type, 1, "") + record(end_type, 1, "\1\2\3\4\2\x51\x52\x53"s, 5) +
                              "next";
    every_split(as_bytes(bytes), [](Pieces pieces) {
        const Response read = read_response(pieces, 1);
        CHECK(read.outcome == Outcome::done);
        CHECK(read.out == "headbody");
        CHECK(read.err == "warning");
        CHECK(read.app_status == 0x01020304);
        CHECK(read.status == ProtocolStatus::overloaded);
        CHECK(read.rest == "next");
    });
}

TEST_CASE("a response without empty records at the end of its streams is complete, as PHP sends it") {
    CHECK(response_outcome(record(out_type, 1, "x", 7) + record(end_type, 1, end_body)) == Outcome::done);
    CHECK(response_outcome(record(end_type, 1, end_body)) == Outcome::done);
}

TEST_CASE("a response is complete only with the last byte of its padding") {
    const std::string bytes = record(out_type, 1, "x") + record(end_type, 1, end_body, 3);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const std::string part = bytes.substr(0, size);
        const std::array<Bytes, 1> pieces{as_bytes(part)};
        CHECK(read_response(pieces, 1).outcome == Outcome::need_more);
    }
}

TEST_CASE("a response that breaks the protocol is refused with its reason") {
    const auto end = [](std::uint8_t status) { return "\0\0\0\0"s + static_cast<char>(status) + "\0\0\0"s; };
    CHECK(response_outcome(record(out_type, 1, "x", 0, 0)) == Outcome::bad_version);
    CHECK(response_outcome(record(out_type, 1, "x", 0, 2)) == Outcome::bad_version);
    for (const auto type : {RecordType::begin_request, RecordType::params, RecordType::stdin_stream,
                            RecordType::unknown_type, RecordType{0}, RecordType{12}, RecordType{255}}) {
        CHECK(response_outcome(record(type, 1, "x")) == Outcome::unexpected_type);
    }
    CHECK(response_outcome(record(out_type, 0, "x")) == Outcome::unexpected_id);
    CHECK(response_outcome(record(out_type, 256, "x")) == Outcome::unexpected_id);
    CHECK(response_outcome(record(end_type, 2, end_body)) == Outcome::unexpected_id);
    CHECK(response_outcome(record(end_type, 1, "1234567")) == Outcome::bad_body_size);
    CHECK(response_outcome(record(end_type, 1, "123456789")) == Outcome::bad_body_size);
    CHECK(response_outcome(record(end_type, 1, "")) == Outcome::bad_body_size);
    CHECK(response_outcome(record(end_type, 1, end(4))) == Outcome::unknown_status);
    CHECK(response_outcome(record(end_type, 1, end(3))) == Outcome::done);
    CHECK(response_outcome(record(out_type, 1, "") + record(out_type, 1, "x")) == Outcome::data_after_end);
    CHECK(response_outcome(record(err_type, 1, "") + record(err_type, 1, "")) == Outcome::data_after_end);
    CHECK(response_outcome(record(out_type, 1, "12345"), 4) == Outcome::stream_too_large);
    CHECK(response_outcome(record(out_type, 1, "12") + record(err_type, 1, "345"), 4) ==
          Outcome::stream_too_large);
    CHECK(response_outcome(record(out_type, 1, "12") + record(err_type, 1, "34"), 4) == Outcome::need_more);
}

TEST_CASE("every outcome has words of its own") {
    std::vector<std::string_view> words;
    for (unsigned value = 0; value <= static_cast<unsigned>(Outcome::too_slow); ++value) {
        words.push_back(describe(Outcome{static_cast<std::uint8_t>(value)}));
    }
    std::ranges::sort(words);
    CHECK(std::ranges::adjacent_find(words) == words.end());
    CHECK(std::ranges::find(words, "unknown outcome") == words.end());
}
