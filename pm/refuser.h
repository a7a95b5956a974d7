// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "pm/request_peek.h"
#include "protocol/detect.h"
#include "protocol/short_answer.h"

namespace cede::pm {

// What the supervisor itself says to a peer, in place of a child, on a connection that a request with a
// complete head lies in.

// What is to become of the connection.
enum class Answered : std::uint8_t {
    kept,    // nothing is left of the request: the next one may come
    ended,   // it said, or its unread rest wants, that this be the last answer: shut down and linger
    failed,  // the answer could not be written: to be closed
};

// Takes a whole request off the socket and writes the answer, without blocking. `peek` has a head, and is the
// latest of this connection.
[[nodiscard]] Answered answer_instead(int connection, protocol::Protocol protocol, const RequestPeek& peek,
                                      const protocol::ShortAnswer& answer) noexcept;

// The request has waited for longer than `max_wait`, or would have to. Says when to come again.
[[nodiscard]] Answered refuse_overdue(int connection, protocol::Protocol protocol, const RequestPeek& peek,
                                      std::chrono::nanoseconds max_wait);

// Whether the request is for this script name; never if that is empty.
[[nodiscard]] bool asks_for(protocol::Protocol protocol, const RequestPeek& peek, std::string_view path);
[[nodiscard]] Answered answer_ping(int connection, protocol::Protocol protocol,
                                   const RequestPeek& peek) noexcept;

}  // namespace cede::pm
