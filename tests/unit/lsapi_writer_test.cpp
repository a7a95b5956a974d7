// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_writer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/lsapi_request_reader.h"
#include "protocol/lsapi_response_reader.h"
#include "tests/support/every_split.h"
#include "tests/support/packets.h"

using namespace cede::protocol;
using namespace cede::protocol::lsapi;
using namespace std::string_literals;
using namespace std::string_view_literals;
using cede::tests::as_bytes;
using cede::tests::as_text;
using cede::tests::every_split;
using cede::tests::packet;

namespace {

using Write = std::function<Written(MutableBytes)>;

constexpr std::array orders{std::endian::little, std::endian::big};
constexpr auto little = std::endian::little;

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

Outcome refusal(const Write& write) {
    std::vector<std::byte> room(200'000, std::byte{0xee});
    const Written size = write(room);
    CHECK(std::ranges::all_of(room, [](std::byte byte) { return byte == std::byte{0xee}; }));
    return size.has_value() ? Outcome::done : size.error();
}

const std::array<NameValue, 4> example_env{{{"SCRIPT_FILENAME", "/w/i.php"},
                                            {"QUERY_STRING", ""},
                                            {"SCRIPT_NAME", "/i.php"},
                                            {"REQUEST_METHOD", "GET"}}};
const std::array<NameValue, 1> example_headers{{{"Host", "a"}}};
const Request example{
    .special_env = {}, .env = example_env, .request_line = "GET /i.php HTTP/1.1", .headers = example_headers};

std::vector<NameValue> all_of(EnvCursor cursor) {
    std::vector<NameValue> entries;
    while (const auto entry = cursor.next()) {
        entries.push_back(*entry);
    }
    return entries;
}

bool same(std::span<const NameValue> left, std::span<const NameValue> right) {
    return std::ranges::equal(left, right, [](const NameValue& a, const NameValue& b) {
        return a.name == b.name && a.value == b.value;
    });
}

}  // namespace

TEST_CASE("the worked example of a request is written byte for byte") {
    CHECK(written([](MutableBytes out) {
              return write_begin_request(out, example, {.leading_zeros = 0, .order = little});
          }) == cede::tests::example_request());
    CHECK(request_size(example, {.leading_zeros = 0}) == 336);
    CHECK(request_size(example) == 340);
}

TEST_CASE("the worked example of an answer is written byte for byte") {
    const std::array<std::string_view, 1> lines{"Content-type: text/plain"};
    CHECK(written([](MutableBytes out) { return write_req_received(out, little); }) +
              written([&](MutableBytes out) { return write_resp_header(out, 200, lines, little); }) +
              written([](MutableBytes out) { return write_resp_stream(out, as_bytes("hi"), little); }) +
              written([](MutableBytes out) { return write_resp_end(out, little); }) ==
          cede::tests::example_answer());
}

TEST_CASE("each small packet is written as the web server and lsphp do") {
    for (const std::endian order : orders) {
        const bool big = order == std::endian::big;
        CHECK(written([&](MutableBytes out) { return write_abort_request(out, order); }) ==
              packet(2, "", big));
        CHECK(written([&](MutableBytes out) { return write_req_received(out, order); }) ==
              packet(7, "", big));
        CHECK(written([&](MutableBytes out) { return write_resp_end(out, order); }) == packet(5, "", big));
        CHECK(written([&](MutableBytes out) { return write_conn_close(out, order); }) == packet(8, "", big));
        CHECK(written([&](MutableBytes out) { return write_pid(out, 0x01020304, order); }) ==
              packet(6, "\0PID"s + (big ? "\1\2\3\4"s : "\4\3\2\1"s), big));
        CHECK(written([&](MutableBytes out) { return write_stderr_stream(out, as_bytes("e"), order); }) ==
              packet(6, "e", big));
        CHECK(as_text(bare_packet(PacketType::conn_close, order)) == packet(8, "", big));
    }
    CHECK(written([](MutableBytes out) { return write_conn_close(out); })[3] ==
          static_cast<char>(native_flag));
}

TEST_CASE("a flag means what the library makes of it, on every kind of processor") {
    using std::endian;
    // x86: 0 is native. A big-endian processor: 1 is native. aarch64: 1 is native and little endian, and so 0
    // is taken for the other order.
    CHECK(order_of(0, 0, endian::little) == endian::little);
    CHECK(order_of(1, 0, endian::little) == endian::big);
    CHECK(order_of(0, 1, endian::big) == endian::little);
    CHECK(order_of(1, 1, endian::big) == endian::big);
    CHECK(order_of(0, 1, endian::little) == endian::big);
    CHECK(order_of(1, 1, endian::little) == endian::little);
    CHECK(order_of(0xfe, 0, endian::little) == endian::little);
    CHECK(order_of(native_flag) == endian::native);
    for (const endian order : orders) {
        CHECK(order_of(flag_of(order)) == order);
    }
}

TEST_CASE("a request of every kind reads back the same") {
    const std::array<NameValue, 3> special{
        {{"\1\4engine", "1"}, {"\1\1memory_limit", ""}, {"\0A"sv, "\0\1"sv}}};
    const std::array<NameValue, 6> headers{{{"host", "h"},
                                            {"X-Mine", "m"},
                                            {"HOST", "second"},
                                            {"Content-Length", "7"},
                                            {"Transfer-Encoding", "chunked"},
                                            {"X-Empty", ""}}};
    for (const std::endian order : orders) {
        for (const std::size_t zeros : {0U, 1U, 4U, 7U}) {
            const Request request{.special_env = special,
                                  .env = example_env,
                                  .request_line = "POST / HTTP/1.1",
                                  .headers = headers,
                                  .body_length = body_length_in_header};
            const std::string bytes = written([&](MutableBytes out) {
                return write_begin_request(out, request, {.leading_zeros = zeros, .order = order});
            });
            RequestReader reader;
            REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
            CHECK(reader.size() == bytes.size());
            CHECK(reader.order() == order);
            CHECK(same(all_of(reader.special_env()), special));
            CHECK(same(all_of(reader.env()), example_env));
            CHECK(reader.script_file() == "/w/i.php");
            CHECK(reader.script_name() == "/i.php");
            CHECK(reader.query_string().empty());
            CHECK(reader.request_method() == "GET");
            CHECK(reader.header(IndexedHeader::host) == "h");
            CHECK(reader.header(IndexedHeader::content_length) == "7");
            CHECK(reader.header(IndexedHeader::transfer_encoding) == "chunked");
            CHECK(reader.body_length() == 7);
            REQUIRE(reader.unknown_headers() == 3);
            CHECK(
                same(std::array{reader.unknown_header(0), reader.unknown_header(1), reader.unknown_header(2)},
                     std::array{headers[1], headers[2], headers[5]}));
            CHECK(reader.http_block() ==
                  std::string(zeros, '\0') +
                      "POST / HTTP/1.1\r\nhost: h\r\nX-Mine: m\r\nHOST: second\r\nContent-Length: 7\r\n"
                      "Transfer-Encoding: chunked\r\nX-Empty: \r\n\r\n");
        }
    }
}

TEST_CASE("every header that the index knows gets its place there") {
    std::vector<NameValue> headers;
    for (const std::string_view name : indexed_header_names) {
        headers.push_back({name, name});
    }
    const Request request{.special_env = {}, .env = {}, .request_line = "GET", .headers = headers};
    const std::string bytes = written([&](MutableBytes out) { return write_begin_request(out, request); });
    RequestReader reader;
    REQUIRE(reader.read(as_bytes(bytes)) == Outcome::done);
    CHECK(reader.unknown_headers() == 0);
    for (std::size_t i = 0; i < headers.size(); ++i) {
        CHECK(reader.header(IndexedHeader{static_cast<std::uint8_t>(i)}) == headers[i].value);
    }
    CHECK(reader.script_file().empty());
}

TEST_CASE("environments and requests at their limits are written, beyond them refused") {
    const auto outcome = [](std::span<const NameValue> special, std::span<const NameValue> env,
                            std::string_view line, std::size_t zeros = 0) {
        const Request request{.special_env = special, .env = env, .request_line = line, .headers = {}};
        std::vector<std::byte> room(65535);
        const Written size = write_begin_request(room, request, {.leading_zeros = zeros});
        if (size.has_value()) {
            RequestReader reader;
            CHECK(reader.read(Bytes{room}.first(*size)) == Outcome::done);
            return Outcome::done;
        }
        return refusal([&](MutableBytes out) { return write_begin_request(out, request, {zeros}); });
    };
    const std::string text(65'535, 't');
    const std::string_view name = std::string_view{text}.substr(0, 1024);
    const std::string_view longer = std::string_view{text}.substr(0, 1025);
    CHECK(outcome({}, std::array{NameValue{name, ""}}, "") == Outcome::done);
    CHECK(outcome({}, std::array{NameValue{longer, ""}}, "") == Outcome::name_value_too_large);
    CHECK(outcome(std::array{NameValue{longer, ""}}, {}, "") == Outcome::name_value_too_large);
    CHECK(outcome({}, std::array{NameValue{"", text}}, "") == Outcome::name_value_too_large);
    // Nothing else would fit beside a value of 65534 bytes, but it is not the value that is refused.
    CHECK(outcome({}, std::array{NameValue{"", std::string_view{text}.substr(1)}}, "") ==
          Outcome::bad_packet_size);
    const std::vector<NameValue> most(8192, NameValue{"", ""});
    const std::vector<NameValue> more(8193, NameValue{"", ""});
    CHECK(outcome({}, most, "") == Outcome::done);
    CHECK(outcome(most, {}, "") == Outcome::done);
    CHECK(outcome({}, more, "") == Outcome::too_many_pairs);
    CHECK(outcome(more, {}, "") == Outcome::too_many_pairs);
    // 44 bytes, two terminators, to a multiple of 8, the index, two line ends
    const std::size_t left = 65535 - 56 - 152 - 4;
    CHECK(outcome({}, {}, std::string_view{text}.substr(0, left)) == Outcome::done);
    CHECK(outcome({}, {}, std::string_view{text}.substr(0, left + 1)) == Outcome::bad_packet_size);
    CHECK(outcome({}, {}, "", left) == Outcome::done);
    CHECK(outcome({}, {}, "", left + 1) == Outcome::bad_packet_size);
    CHECK(outcome({}, {}, "", ~std::size_t{0}) == Outcome::bad_packet_size);
}

TEST_CASE("content is cut into packets of 16384 bytes, and empty content writes none") {
    const std::string content(16384 * 2 + 1, 'c');
    for (const std::size_t size : {std::size_t{1}, std::size_t{16384}, std::size_t{16385}, content.size()}) {
        std::vector<std::byte> room(stream_size(size));
        CHECK(write_resp_stream(room, as_bytes(content).first(size)) == room.size());
        CHECK(room.size() == size + (size + 16383) / 16384 * 8);
        std::vector<std::byte> storage(8);
        ResponseReader reader{storage};
        std::size_t body = 0;
        Bytes input{room};
        while (reader.next(input) == ResponseEvent::body_bytes) {
            body += reader.content().size();
        }
        CHECK(reader.outcome() == Outcome::need_more);
        CHECK(body == size);
        room.pop_back();
        CHECK(write_resp_stream(room, as_bytes(content).first(size)) ==
              std::unexpected{Outcome::does_not_fit});
    }
    CHECK(write_resp_stream({}, {}) == 0);
    CHECK(write_stderr_stream({}, {}) == 0);
    CHECK(stream_size(0) == 0);
}

TEST_CASE("response headers at their limits read back the same, beyond them they are refused") {
    const auto outcome = [](std::span<const std::string_view> lines) {
        std::vector<std::byte> room(65543);
        const Written size = write_resp_header(room, 404, lines);
        if (!size.has_value()) {
            return refusal([&](MutableBytes out) { return write_resp_header(out, 404, lines); });
        }
        std::vector<std::byte> storage(65535);
        ResponseReader reader{storage};
        Bytes input = Bytes{room}.first(*size);
        REQUIRE(reader.next(input) == ResponseEvent::head);
        CHECK(reader.status() == 404);
        LineCursor cursor = reader.lines();
        for (const std::string_view line : lines) {
            CHECK(cursor.next() == line);
        }
        CHECK(cursor.next() == std::nullopt);
        return Outcome::done;
    };
    const std::string text(40'000, 't');
    const auto part = [&](std::size_t size) { return std::string_view{text}.substr(0, size); };
    CHECK(outcome({}) == Outcome::done);
    CHECK(outcome(std::vector<std::string_view>(1000, "A: b")) == Outcome::done);
    CHECK(outcome(std::vector<std::string_view>(1001, "A: b")) == Outcome::too_many_lines);
    CHECK(outcome(std::array{part(32766)}) == Outcome::done);
    CHECK(outcome(std::array{part(32767)}) == Outcome::name_value_too_large);
    // 65535 = count and status, two lengths, two lines with their NULs
    CHECK(outcome(std::array{part(32766), part(65535 - 8 - 4 - 2 - 32766)}) == Outcome::done);
    CHECK(outcome(std::array{part(32766), part(65535 - 8 - 4 - 2 - 32766 + 1)}) == Outcome::bad_packet_size);
}

TEST_CASE("a whole answer written in either order reads back the same, cut at every byte") {
    const std::array<std::string_view, 2> lines{"A: b", ""};
    for (const std::endian order : orders) {
        std::vector<std::byte> bytes(512);
        std::size_t size = 0;
        const auto append = [&](const Write& write) {
            size += write(MutableBytes{bytes}.subspan(size)).value();
        };
        append([&](MutableBytes out) { return write_pid(out, -5, order); });
        append([&](MutableBytes out) { return write_resp_header(out, -1, lines, order); });
        append([&](MutableBytes out) { return write_resp_stream(out, as_bytes("body"), order); });
        append([&](MutableBytes out) { return write_stderr_stream(out, as_bytes("log"), order); });
        append([&](MutableBytes out) { return write_resp_end(out, order); });
        every_split(Bytes{bytes}.first(size), [](std::span<const Bytes> pieces) {
            std::array<std::byte, 64> storage{};
            ResponseReader reader{storage};
            std::string streams;
            for (Bytes piece : pieces) {
                for (ResponseEvent event; (event = reader.next(piece)) != ResponseEvent::need_more &&
                                          event != ResponseEvent::end;) {
                    streams += as_text(reader.content());
                }
            }
            CHECK(reader.outcome() == Outcome::done);
            CHECK(reader.pid() == -5);
            CHECK(reader.status() == -1);
            CHECK(streams == "bodylog");
        });
    }
}
