// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/detect.h"
#include "protocol/outcome.h"

// A request that lies in memory, from its first byte on and as far as it has come: how far that is, what its
// variables say, and one variable more for it. Nothing is kept between two calls, so that whoever peeks at a
// socket begins anew each time. Allocates nothing.
namespace cede::protocol {

struct RequestHead {
    // need_more: the head has not all come. done: it has, and what is below is valid. Anything else: there is
    // no head in these bytes, however many more come. FastCGI: PHP closes the connection on them without a
    // word and waits for no more: bad_version, unexpected_type (the first record is no BEGIN_REQUEST),
    // bad_body_size and unknown_role (of BEGIN_REQUEST), bad_packet_size (a record that is too large for
    // PHP). LSAPI: as RequestReader tells it. Protocol::unknown: bad_version.
    Outcome outcome = Outcome::need_more;
    // Bytes to the end of the head. FastCGI: behind the empty PARAMS record and its padding, or in front of
    // another record that PHP takes for the end of the parameters; empty STDIN records in front, the rest of
    // the request before, are a part of it. LSAPI: the packet. With unexpected_type: 8 if what is there is an
    // ABORT_REQUEST, which may be skipped, else 0.
    std::size_t head_size = 0;
    // Nothing that belongs to the request, and nothing that PHP waits for, is still to come. FastCGI: the
    // empty STDIN record is there, or another record that PHP does not read on behind.
    bool request_complete = false;
    std::size_t request_size = 0;   // if complete: bytes of all of it
    std::uint64_t body_here = 0;    // bytes of the body that have come
    std::uint64_t body_length = 0;  // LSAPI: bytes that the body has; FastCGI tells by CONTENT_LENGTH only
    std::uint16_t id = 0;           // FastCGI
    bool keep_connection = false;   // FastCGI: KEEP_CONN. LSAPI: true
    // FastCGI: no request but a GET_VALUES record, which PHP answers, and goes on with the connection. Head
    // and request are that record.
    bool management = false;
};

// `bytes` begin at the first byte of a request. The outcome for a part of a request is need_more or that for
// the whole.
[[nodiscard]] RequestHead read_request_head(Protocol protocol, Bytes bytes) noexcept;

// Copies the value that PHP shows in $_SERVER for exactly this name to the front of `value`, and gives its
// length: of several the last one. LSAPI: headers have the names that CGI has for them (HTTP_HOST), and count
// less than an environment entry. `head` is the first head_size bytes of a complete head. Nothing if there is
// no such variable, or its value does not fit; what is in `value` means nothing then.
[[nodiscard]] std::optional<std::size_t> find_variable(Protocol protocol, Bytes head, std::string_view name,
                                                       MutableBytes value) noexcept;

// Puts one variable more into the complete head that `buffer` begins with, of which `used` bytes are in use:
// what is behind the head moves. Whatever else in the head PHP would show under this name in $_SERVER is made
// invisible: its name gets a NUL for its first byte, a name that PHP leaves out. Gives the new `used`; the
// head has grown by as much. Nothing, and nothing is changed, if it does not fit into `buffer` or into what
// the protocol allows, or if a request head of
// this size is not what the buffer begins with.
[[nodiscard]] std::optional<std::size_t> add_variable(Protocol protocol, MutableBytes buffer,
                                                      std::size_t used, std::size_t head_size,
                                                      std::string_view name, std::string_view value) noexcept;

}  // namespace cede::protocol
