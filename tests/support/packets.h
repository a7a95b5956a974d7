// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/lsapi.h"

// LSAPI messages as text, put together by hand: tests of the codecs must not rest on the codecs. Of these
// only the flag for a byte order is taken, which depends on the processor.
namespace cede::tests {

inline std::string number(std::int64_t value, std::size_t size, bool big = false) {
    std::string bytes;
    for (std::size_t i = 0; i < size; ++i) {
        const std::size_t shift = 8 * (big ? size - 1 - i : i);
        bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> shift);
    }
    return bytes;
}

// Overwrites the number of `size` bytes at a place of the message.
inline void set_number(std::string& bytes, std::size_t at, std::int64_t value, std::size_t size = 4,
                       bool big = false) {
    bytes.replace(at, size, number(value, size, big));
}

inline std::string packet_header(unsigned type, std::int64_t length, bool big = false) {
    const auto flag = protocol::lsapi::flag_of(big ? std::endian::big : std::endian::little);
    return std::string{"LS"} + static_cast<char>(type) + static_cast<char>(flag) + number(length, 4, big);
}

inline std::string packet(unsigned type, std::string_view content = {}, bool big = false) {
    return packet_header(type, static_cast<std::int64_t>(8 + content.size()), big) + std::string{content};
}

inline std::string env_entry(std::string_view name, std::string_view value) {
    return number(static_cast<std::int64_t>(name.size() + 1), 2, true) +
           number(static_cast<std::int64_t>(value.size() + 1), 2, true) + std::string{name} + '\0' +
           std::string{value} + '\0';
}

// A BEGIN_REQUEST packet in its parts. Lists are given encoded, so that they can be wrong.
struct RawRequest {
    bool big = false;
    std::int64_t body_length = 0;
    std::array<std::int64_t, 4> offsets{};  // script file, script name, query string, method
    std::string special_env{};
    std::int64_t special_env_count = 0;
    std::string env{};
    std::int64_t env_count = 0;
    std::vector<std::array<std::int64_t, 3>> indexed{};  // place in the index, offset, length
    std::vector<std::array<std::int64_t, 4>> unknown{};  // offset and length of name, then of value
    std::string block = "GET / HTTP/1.1\r\n\r\n";

    // Where the index begins.
    [[nodiscard]] std::size_t index_at() const {
        return (44 + special_env.size() + 4 + env.size() + 4 + 7) / 8 * 8;
    }
    [[nodiscard]] std::size_t block_at() const { return index_at() + 152 + 16 * unknown.size(); }

    [[nodiscard]] std::string bytes() const {
        std::string out = packet_header(1, static_cast<std::int64_t>(block_at() + block.size()), big);
        for (const std::int64_t field :
             {static_cast<std::int64_t>(block.size()), body_length, offsets[0], offsets[1], offsets[2],
              offsets[3], static_cast<std::int64_t>(unknown.size()), env_count, special_env_count}) {
            out += number(field, 4, big);
        }
        out += special_env + std::string(4, '\0') + env + std::string(4, '\0');
        out.resize(index_at() + 152, '\0');
        for (const auto& [place, offset, length] : indexed) {
            const auto at = static_cast<std::size_t>(place);
            set_number(out, index_at() + 2 * at, length, 2, big);
            set_number(out, index_at() + 52 + 4 * at, offset, 4, big);
        }
        for (const auto& entry : unknown) {
            for (const std::int64_t field : entry) {
                out += number(field, 4, big);
            }
        }
        return out + block;
    }
};

// A POST whose body's length stands in its Content-Length header only, unless `announced` says otherwise.
inline RawRequest post_request(std::string_view content_length, std::int64_t announced = -2,
                               bool big = false) {
    RawRequest request{.big = big, .body_length = announced};
    request.block = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ";
    request.indexed = {{10, 23, 1},
                       {7, static_cast<std::int64_t>(request.block.size()),
                        static_cast<std::int64_t>(content_length.size())}};
    request.block += std::string{content_length} + "\r\n\r\n";
    return request;
}

// The example of docs/lsapi.md: GET of /i.php, and its answer. As x86 sends it.
inline std::string example_request() {
    using namespace std::string_literals;
    const std::string bytes =
        "LS\x01\x00\x50\x01\x00\x00\x20\x00\x00\x00\x00\x00\x00\x00"s
        "\x44\x00\x00\x00\x6f\x00\x00\x00\x5e\x00\x00\x00\x89\x00\x00\x00"s
        "\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00"s
        "\x00\x00\x00\x00"s
        "\x00\x10\x00\x09SCRIPT_FILENAME\x00/w/i.php\x00"s
        "\x00\x0d\x00\x01QUERY_STRING\x00\x00"s
        "\x00\x0c\x00\x07SCRIPT_NAME\x00/i.php\x00"s
        "\x00\x0f\x00\x04REQUEST_METHOD\x00GET\x00"s
        "\x00\x00\x00\x00"s +
        std::string(7, '\0') + std::string(20, '\0') + "\x01\x00"s + std::string(28, '\0') + "\x00\x00"s +
        std::string(40, '\0') + "\x1b\x00\x00\x00"s + std::string(56, '\0') +
        "GET /i.php HTTP/1.1\r\nHost: a\r\n\r\n";
    return packet_header(1, 0x150) + bytes.substr(8);
}

inline std::string example_answer() {
    using namespace std::string_literals;
    return packet(7) +
           packet(3, "\x01\x00\x00\x00\xc8\x00\x00\x00\x19\x00"s + "Content-type: text/plain\x00"s) +
           packet(4, "hi") + packet(5);
}

}  // namespace cede::tests
