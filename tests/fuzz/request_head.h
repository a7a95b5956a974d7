// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "protocol/request_head.h"

// Any bytes as a request, cut where the first byte says: sizes lie inside, a part gives the same outcome or
// none yet, and a variable that was added is found, with what was behind the head behind it still.
namespace cede::tests {

inline void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

inline void check_head(protocol::Protocol protocol, const std::uint8_t* data, std::size_t size) {
    using namespace protocol;
    if (size == 0) {
        return;
    }
    const Bytes message = std::as_bytes(std::span{data + 1, size - 1});
    const std::vector<std::byte> part{
        message.begin(), message.begin() + static_cast<std::ptrdiff_t>(message.size() * data[0] / 256)};
    const RequestHead head = read_request_head(protocol, message);
    const Outcome early = read_request_head(protocol, part).outcome;
    require(early == Outcome::need_more || early == head.outcome);
    require(head.head_size <= message.size() && head.request_size <= message.size());
    std::array<std::byte, 64> value;
    if (const auto found = find_variable(protocol, message.first(head.head_size), "A", value)) {
        require(*found <= value.size());
    }
    std::vector<std::byte> buffer{message.begin(), message.end()};
    buffer.resize(buffer.size() + 40);
    const auto used = add_variable(protocol, buffer, message.size(), head.head_size, "CEDE_X", "value");
    if (!used) {
        require(std::ranges::equal(message, Bytes{buffer}.first(message.size())));
        return;
    }
    const Bytes all = Bytes{buffer}.first(*used);
    const RequestHead grown = read_request_head(protocol, all);
    require(head.outcome == Outcome::done && grown.outcome == Outcome::done);
    require(grown.request_complete == head.request_complete);
    require(std::ranges::equal(all.subspan(grown.head_size), message.subspan(head.head_size)));
    require(find_variable(protocol, all.first(grown.head_size), "CEDE_X", value) == 5);
}

}  // namespace cede::tests
