// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/lsapi.h"
#include "protocol/outcome.h"

// Writers of LSAPI packets into space of the caller. Each writes its packets whole or not at all and returns
// the number of bytes written, or does_not_fit, bad_packet_size (more than a packet of that type may hold),
// name_value_too_large, too_many_pairs or too_many_lines. Numbers are written in the order asked for; real
// peers write their native one.
namespace cede::protocol::lsapi {

using Written = std::expected<std::size_t, Outcome>;

// What a web server says about a request. SCRIPT_FILENAME, SCRIPT_NAME, QUERY_STRING and REQUEST_METHOD are
// found in `env` by name, the last of each; one that is missing gets the offset 0.
struct Request {
    std::span<const NameValue> special_env;  // names with their marker bytes
    std::span<const NameValue> env;
    std::string_view request_line;  // without line end
    // The first of a name that the index knows gets its place there; all others are unknown headers.
    std::span<const NameValue> headers;
    std::int32_t body_length = 0;  // as it shall stand in the packet; may be body_length_in_header
};

struct RequestLayout {
    std::size_t leading_zeros = 4;  // in front of the request line, as OpenLiteSpeed does
    std::endian order = std::endian::native;
};

// Bytes of the packet; more than max_request_packet can not be written.
[[nodiscard]] std::uint64_t request_size(const Request& request, RequestLayout layout = {}) noexcept;
// Bytes that a stream of `content` bytes takes in packets; 0 for an empty one.
[[nodiscard]] std::uint64_t stream_size(std::uint64_t content) noexcept;

// From the web server. The body is to follow as it is, without packets.
[[nodiscard]] Written write_begin_request(MutableBytes out, const Request& request,
                                          RequestLayout layout = {}) noexcept;
[[nodiscard]] Written write_abort_request(MutableBytes out, std::endian order = std::endian::native) noexcept;

// From the application.
[[nodiscard]] Written write_req_received(MutableBytes out, std::endian order = std::endian::native) noexcept;
// The acknowledgement of a child that a prefork parent has forked for this connection.
[[nodiscard]] Written write_pid(MutableBytes out, std::int32_t pid,
                                std::endian order = std::endian::native) noexcept;
// Lines are "Name: value", without line end. status 0: a Status line, or nothing, decides.
[[nodiscard]] Written write_resp_header(MutableBytes out, std::int32_t status,
                                        std::span<const std::string_view> lines,
                                        std::endian order = std::endian::native) noexcept;
// Packets of at most max_data bytes of content each. Empty content writes nothing.
[[nodiscard]] Written write_resp_stream(MutableBytes out, Bytes content,
                                        std::endian order = std::endian::native) noexcept;
[[nodiscard]] Written write_stderr_stream(MutableBytes out, Bytes content,
                                          std::endian order = std::endian::native) noexcept;
[[nodiscard]] Written write_resp_end(MutableBytes out, std::endian order = std::endian::native) noexcept;
[[nodiscard]] Written write_conn_close(MutableBytes out, std::endian order = std::endian::native) noexcept;

}  // namespace cede::protocol::lsapi
