// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_writer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/fastcgi_reader.h"
#include "tests/support/every_split.h"

using namespace cede::protocol;
using namespace cede::protocol::fastcgi;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::as_text;
using cede::tests::every_split;

namespace {

using Write = std::function<Written(MutableBytes)>;

// The bytes written, after checking that every smaller space is refused and left untouched.
std::string written(const Write& write) {
    std::vector<std::byte> room(4096, std::byte{0xee});
    const Written size = write(room);
    REQUIRE(size.has_value());
    REQUIRE(*size <= room.size());
    CHECK(std::all_of(room.begin() + static_cast<std::ptrdiff_t>(*size), room.end(),
                      [](std::byte byte) { return byte == std::byte{0xee}; }));
    std::vector<std::byte> exact(*size);
    CHECK(write(exact) == size);
    for (std::size_t smaller = 0; smaller < *size; ++smaller) {
        std::vector<std::byte> tight(smaller, std::byte{0xee});
        CHECK(write(tight) == std::unexpected{Outcome::does_not_fit});
        CHECK(std::ranges::all_of(tight, [](std::byte byte) { return byte == std::byte{0xee}; }));
    }
    return std::string{as_text(exact)};
}

const std::array<NameValue, 2> two_pairs{{{"NAME", "val"}, {"", ""}}};

}  // namespace

TEST_CASE("each record is written as the specification lays it out") {
    CHECK(written([](MutableBytes out) {
              return write_begin_request(out, 0x0102, Role::responder, keep_conn_flag);
          }) == "\1\1\1\2\0\x08\0\0\0\1\1\0\0\0\0\0"s);
    CHECK(written([](MutableBytes out) { return write_abort_request(out, 1); }) == "\1\2\0\1\0\0\0\0"s);
    CHECK(written([](MutableBytes out) {
              return write_end_request(out, 1, 0x0a0b0c0d, ProtocolStatus::overloaded);
          }) == "\1\3\0\1\0\x08\0\0\x0a\x0b\x0c\x0d\2\0\0\0"s);
    CHECK(written([](MutableBytes out) { return write_params(out, 1, two_pairs); }) ==
          "\1\4\0\1\0\x0b\0\0\4\3NAMEval\0\0"s);
    CHECK(written([](MutableBytes out) { return write_stream_end(out, RecordType::params, 1); }) ==
          "\1\4\0\1\0\0\0\0"s);
    CHECK(written([](MutableBytes out) {
              return write_stream(out, RecordType::stdin_stream, 1, as_bytes("abc"), {.padding = 5});
          }) == "\1\5\0\1\0\3\5\0abc\0\0\0\0\0"s);
    CHECK(written([](MutableBytes out) {
              return write_stream(out, RecordType::stdout_stream, 1, as_bytes("abc"), {.max_content = 2});
          }) == "\1\6\0\1\0\2\0\0ab\1\6\0\1\0\1\0\0c"s);
    CHECK(written([](MutableBytes out) {
              return write_stream(out, RecordType::stderr_stream, 1, as_bytes("e"));
          }) == "\1\7\0\1\0\1\0\0e"s);
    CHECK(written([](MutableBytes out) { return write_unknown_type(out, RecordType{99}); }) ==
          "\1\x0b\0\0\0\x08\0\0\x63\0\0\0\0\0\0\0"s);
}

TEST_CASE("management pairs are written in one record of request 0") {
    const std::array<std::string_view, 2> names{"FCGI_MAX_CONNS", "X"};
    CHECK(written([&](MutableBytes out) { return write_get_values(out, names); }) ==
          "\1\x09\0\0\0\x13\0\0\x0e\0"s + "FCGI_MAX_CONNS\1\0X"s);
    CHECK(written([](MutableBytes out) { return write_get_values_result(out, two_pairs); }) ==
          "\1\x0a\0\0\0\x0b\0\0\4\3NAMEval\0\0"s);
    CHECK(written([](MutableBytes out) { return write_get_values(out, {}); }) == "\1\x09\0\0\0\0\0\0"s);
    CHECK(written([](MutableBytes out) { return write_get_values_result(out, {}); }) ==
          "\1\x0a\0\0\0\0\0\0"s);
}

TEST_CASE("empty content writes no record, because an empty record would end the stream") {
    CHECK(write_stream({}, RecordType::stdin_stream, 1, {}) == 0);
    CHECK(write_params({}, 1, {}) == 0);
}

TEST_CASE("management pairs that do not fit into one record are refused") {
    std::vector<std::byte> room(200'000);
    const std::string value(65'535, 'v');
    const std::array<NameValue, 1> largest{{{"", std::string_view{value}.substr(5)}}};
    const std::array<NameValue, 1> larger{{{"", std::string_view{value}.substr(4)}}};
    CHECK(write_get_values_result(room, largest) == max_record - max_padding);
    CHECK(write_get_values_result(room, larger) == std::unexpected{Outcome::name_value_too_large});
    const std::array<std::string_view, 1> name{value};
    CHECK(write_get_values(room, name) == std::unexpected{Outcome::name_value_too_large});
}

TEST_CASE("a name or value beyond 31 bits is refused before a byte of it is read (F66)") {
    const char byte = 'x';
    std::vector<std::byte> room(64);
    for (const std::size_t length : {std::size_t{0x80000000}, std::size_t{0x100000001}}) {
        const std::string_view endless{&byte, length};  // only its length may be looked at
        CHECK(write_params(room, 1, std::array<NameValue, 1>{{{endless, ""}}}) ==
              std::unexpected{Outcome::name_value_too_large});
        CHECK(write_params(room, 1, std::array<NameValue, 1>{{{"", endless}}}) ==
              std::unexpected{Outcome::name_value_too_large});
    }
    const std::string_view largest{&byte, 0x7fffffff};
    CHECK(write_params(room, 1, std::array<NameValue, 1>{{{largest, largest}}}) ==
          std::unexpected{Outcome::does_not_fit});
}

TEST_CASE("a record size that is not 1 to 65535 is refused") {
    std::vector<std::byte> room(200'000);
    for (const std::size_t size : {0UL, 65'536UL}) {
        CHECK(write_params(room, 1, two_pairs, {.max_content = size}) ==
              std::unexpected{Outcome::bad_layout});
        CHECK(write_stream(room, RecordType::stdin_stream, 1, as_bytes("x"), {.max_content = size}) ==
              std::unexpected{Outcome::bad_layout});
    }
}

TEST_CASE("lengths of 127 take one byte and lengths of 128 take four") {
    const std::string just_short(127, 's');
    const std::string just_long(128, 'l');
    const std::array<NameValue, 1> pair{{{just_short, just_long}}};
    CHECK(written([&](MutableBytes out) { return write_params(out, 1, pair); }) ==
          "\1\4\0\1\1\x04\0\0\x7f\x80\0\0\x80"s + just_short + just_long);
}

TEST_CASE("a whole request written in any layout reads back the same, cut at every byte") {
    for (const std::size_t cut : {1UL, 3UL, 8UL, 65'535UL}) {
        const RecordLayout layout{.max_content = cut, .padding = static_cast<std::uint8_t>(cut % 5)};
        std::vector<std::byte> bytes(2048);
        std::size_t size = 0;
        const auto append = [&](const Write& write) {
            size += write(MutableBytes{bytes}.subspan(size)).value();
        };
        append([](MutableBytes out) { return write_begin_request(out, 3, Role::responder, 0); });
        append([&](MutableBytes out) { return write_params(out, 3, two_pairs, layout); });
        append([](MutableBytes out) { return write_stream_end(out, RecordType::params, 3); });
        append([&](MutableBytes out) {
            return write_stream(out, RecordType::stdin_stream, 3, as_bytes("posted"), layout);
        });
        append([](MutableBytes out) { return write_stream_end(out, RecordType::stdin_stream, 3); });
        every_split(Bytes{bytes}.first(size), [](std::span<const Bytes> pieces) {
            RecordReader reader;
            std::string params;
            std::string body;
            for (Bytes piece : pieces) {
                for (RecordEvent event; (event = reader.next(piece)) != RecordEvent::need_more;) {
                    CHECK(reader.header().request_id == 3);
                    if (event == RecordEvent::content && reader.header().type == RecordType::params) {
                        params += as_text(reader.content());
                    } else if (event == RecordEvent::content &&
                               reader.header().type == RecordType::stdin_stream) {
                        body += as_text(reader.content());
                    }
                }
            }
            CHECK(params == "\4\3NAMEval\0\0"s);
            CHECK(body == "posted");
            CHECK(reader.between_records());
        });
    }
}
