// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/bytes.h"

namespace cede::tests {

// Calls `feed(pieces)` with the message whole, cut in two at every position (both ends included, so that
// empty pieces occur), and byte by byte. Each piece is a copy in memory of its own exact size, so that the
// address sanitizer sees any read beyond it.
template <typename Feed>
void every_split(protocol::Bytes message, Feed&& feed) {
    const auto call = [&feed](const std::vector<std::vector<std::byte>>& copies) {
        const std::vector<protocol::Bytes> pieces{copies.begin(), copies.end()};
        feed(std::span<const protocol::Bytes>{pieces});
    };
    call({{message.begin(), message.end()}});
    for (std::size_t cut = 0; cut <= message.size(); ++cut) {
        const auto head = message.first(cut);
        const auto tail = message.subspan(cut);
        call({{head.begin(), head.end()}, {tail.begin(), tail.end()}});
    }
    std::vector<std::vector<std::byte>> bytes;
    for (const std::byte byte : message) {
        bytes.push_back({byte});
    }
    call(bytes);
}

[[nodiscard]] inline protocol::Bytes as_bytes(std::string_view text) {
    return std::as_bytes(std::span{text});
}

[[nodiscard]] inline std::string_view as_text(protocol::Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace cede::tests
