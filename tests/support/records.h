// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// FastCGI messages as text, put together by hand: tests of the codecs must not rest on the codecs.
namespace cede::tests {

inline std::string record(unsigned type, std::string_view content, unsigned padding = 0, unsigned id = 1) {
    std::string bytes;
    for (const unsigned value : {1U, type, id >> 8U, id, static_cast<unsigned>(content.size() >> 8U),
                                 static_cast<unsigned>(content.size()), padding, 0U}) {
        bytes += static_cast<char>(static_cast<std::uint8_t>(value));
    }
    bytes += content;
    bytes.append(padding, 'p');
    return bytes;
}

inline std::string begin_record(bool keep, unsigned padding = 0) {
    using namespace std::string_literals;
    return record(1, keep ? "\0\1\1\0\0\0\0\0"s : "\0\1\0\0\0\0\0\0"s, padding);
}

inline std::string end_record(unsigned padding = 0) {
    return record(3, std::string(8, '\0'), padding);
}

// Name and value, both shorter than 128 bytes or both written with four bytes of length.
inline std::string pair(std::string_view name, std::string_view value) {
    const auto length = [](std::size_t size) {
        if (size < 128) {
            return std::string(1, static_cast<char>(size));
        }
        return std::string{static_cast<char>(0x80U | (size >> 24U)), static_cast<char>(size >> 16U),
                           static_cast<char>(size >> 8U), static_cast<char>(size)};
    };
    return length(name.size()) + length(value.size()) + std::string{name} + std::string{value};
}

// A whole request, each stream in one record.
inline std::string request(std::string_view params, std::string_view body = {}, bool keep = true) {
    std::string bytes = begin_record(keep) + record(4, params) + record(4, "");
    if (!body.empty()) {
        bytes += record(5, body);
    }
    return bytes + record(5, "");
}

}  // namespace cede::tests
