// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "children/whole_request.h"
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

// Of one thread only. Protocol::unknown: everything is broken.
[[nodiscard]] RequestPeek peek_request(int connection, protocol::Protocol protocol) noexcept;

}  // namespace cede::pm
