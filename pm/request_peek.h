// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/detect.h"
#include "protocol/request_head.h"

namespace cede::pm {

// What lies at the front of a connection, without reading it.
struct RequestPeek {
    enum class Kind : std::uint8_t {
        gone,     // end of stream, or an error
        silent,   // nothing
        partial,  // a part of a request, and who would run it would have to wait for the rest
        ready,    // a child can run it: it is whole, or has its head and more of its body than fits below
        broken,   // no request will come of it: a child answers or closes as it sees fit
    } kind = Kind::silent;
    protocol::RequestHead head;
    protocol::Bytes bytes;  // valid until the next peek

    // Its head is there.
    [[nodiscard]] bool has_head() const noexcept {
        return head.outcome == protocol::Outcome::done && !head.management;
    }
};

// The most that is looked at, and how much of a body is enough to begin with.
inline constexpr std::size_t most_peeked = 64 * 1024;
inline constexpr std::uint64_t enough_of_body = 32 * 1024;

// Of one thread only. Protocol::unknown: everything is broken.
[[nodiscard]] RequestPeek peek_request(int connection, protocol::Protocol protocol) noexcept;

}  // namespace cede::pm
