// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/detect.h"
#include "protocol/request_head.h"

// When what lies unread in a socket is worth a child. Child and supervisor must agree: what one of them gives
// away as a part, the other would give back. docs/design/0014-whole-before-a-child.md has why.
namespace cede::children {

// The most that is looked at.
inline constexpr std::size_t most_peeked = 65536;
// A body of which as much is there is begun with: the rest is as likely to come.
inline constexpr std::uint64_t enough_of_body = 32768;

enum class Wholeness : std::uint8_t {
    part,      // whoever ran it would have to wait for the rest
    ready,     // the head is complete, and the body is, or enough of it
    broken,    // no request will come of it, or it is larger than what is looked at: PHP sees for itself
    leftover,  // FastCGI: only what ended the body of a request that has been answered
};
[[nodiscard]] Wholeness wholeness_of(protocol::Protocol protocol, const protocol::RequestHead& head,
                                     protocol::Bytes peeked) noexcept;

}  // namespace cede::children
