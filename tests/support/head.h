// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/request_head.h"
#include "tests/support/every_split.h"

// What the functions of protocol/request_head.h do with bytes that lie in memory of their own exact size, so
// that the address sanitizer sees any access beyond it.
namespace cede::tests {

inline std::vector<std::byte> exactly(std::string_view bytes) {
    return {as_bytes(bytes).begin(), as_bytes(bytes).end()};
}

inline protocol::RequestHead head_of(protocol::Protocol protocol, std::string_view bytes) {
    return protocol::read_request_head(protocol, exactly(bytes));
}

inline std::optional<std::string> find(protocol::Protocol protocol, std::string_view head,
                                       std::string_view name, std::size_t room) {
    std::vector<std::byte> value(room);
    const auto size = protocol::find_variable(protocol, exactly(head), name, value);
    return size ? std::optional{std::string{as_text(protocol::Bytes{value}.first(*size))}} : std::nullopt;
}

// The request with the variable, in a buffer of this size (or of its own, if that is larger).
inline std::optional<std::string> added(protocol::Protocol protocol, const std::string& bytes,
                                        std::string_view name, std::string_view value, std::size_t room) {
    std::vector<std::byte> buffer = exactly(bytes);
    buffer.resize(std::max(room, bytes.size()), std::byte{'?'});
    const std::vector<std::byte> before = buffer;
    const std::size_t head_size = head_of(protocol, bytes).head_size;
    const auto used = protocol::add_variable(protocol, buffer, bytes.size(), head_size, name, value);
    if (!used) {
        CHECK(buffer == before);
        return std::nullopt;
    }
    return std::string{as_text(protocol::Bytes{buffer}.first(*used))};
}

inline std::string damaged(std::string bytes, std::mt19937& random) {
    for (std::size_t changes = random() % 3; changes > 0; --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random() % 3 == 0 ? random() % 12 : random());
    }
    return bytes;
}

// Whatever the bytes: a part of them gives the same outcome or none yet, sizes lie inside, and a variable
// that was added is found, with everything behind the head where it belongs. True: there is a complete head.
inline bool check_any_bytes(protocol::Protocol protocol, const std::string& bytes) {
    const protocol::RequestHead head = head_of(protocol, bytes);
    for (const std::size_t size : {bytes.size() / 3, bytes.size() / 2, bytes.size() - 1}) {
        const protocol::Outcome part = head_of(protocol, bytes.substr(0, size)).outcome;
        REQUIRE((part == protocol::Outcome::need_more || part == head.outcome));
    }
    REQUIRE(head.head_size <= bytes.size());
    REQUIRE(head.request_size <= bytes.size());
    REQUIRE(head.request_complete == (head.request_size > 0));
    const auto with = added(protocol, bytes, "CEDE_X", "value", bytes.size() + 40);
    const bool complete = head.outcome == protocol::Outcome::done;
    REQUIRE((complete || !with));
    // An LSAPI request may have an offset that points where none can be moved.
    REQUIRE((with || !complete || head.management || protocol == protocol::Protocol::lsapi));
    if (with) {
        const protocol::RequestHead grown = head_of(protocol, *with);
        REQUIRE(grown.outcome == protocol::Outcome::done);
        REQUIRE(with->substr(grown.head_size) == bytes.substr(head.head_size));
        REQUIRE(grown.request_complete == head.request_complete);
        REQUIRE(find(protocol, with->substr(0, grown.head_size), "CEDE_X", 5) == "value");
    }
    return complete;
}

}  // namespace cede::tests
