// SPDX-License-Identifier: Apache-2.0
#include "pm/request_peek.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>

namespace cede::pm {

using Kind = RequestPeek::Kind;

RequestPeek peek_request(int connection, protocol::Protocol protocol) noexcept {
    static std::array<std::byte, children::most_peeked> buffer;
    const ssize_t got = recv(connection, buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) {
        const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EINTR);
        return {nothing_yet ? Kind::silent : Kind::gone, {}, {}};
    }
    RequestPeek peek;
    peek.bytes = protocol::Bytes{buffer}.first(static_cast<std::size_t>(got));
    peek.head = protocol::read_request_head(protocol, peek.bytes);
    switch (children::wholeness_of(protocol, peek.head, peek.bytes)) {
        case children::Wholeness::part:
            peek.kind = Kind::partial;
            break;
        case children::Wholeness::leftover:  // a child drops it
        case children::Wholeness::ready:
            peek.kind = Kind::ready;
            break;
        case children::Wholeness::broken:
            peek.kind = Kind::broken;
            break;
    }
    return peek;
}

}  // namespace cede::pm
