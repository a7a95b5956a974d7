// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"

// Wire constants of FastCGI 1.0. Section numbers are those of the FastCGI Specification (Open Market, 1996);
// what PHP really does with them stands in docs/fastcgi.md.
namespace cede::protocol::fastcgi {

inline constexpr std::uint8_t version_1 = 1;
inline constexpr std::size_t header_size = 8;      // section 3.3
inline constexpr std::size_t max_content = 65535;  // contentLength is 16 bits wide
inline constexpr std::size_t max_padding = 255;    // paddingLength is 8 bits wide
inline constexpr std::size_t max_record = header_size + max_content + max_padding;
inline constexpr std::size_t begin_request_body_size = 8;  // section 5.1
inline constexpr std::size_t end_request_body_size = 8;    // section 5.5
inline constexpr std::size_t unknown_type_body_size = 8;   // section 4.2
inline constexpr std::uint16_t management_request_id = 0;  // section 3.3
inline constexpr std::uint8_t keep_conn_flag = 1;          // section 5.1

enum class RecordType : std::uint8_t {  // section 8
    begin_request = 1,
    abort_request = 2,
    end_request = 3,
    params = 4,
    stdin_stream = 5,
    stdout_stream = 6,
    stderr_stream = 7,
    data = 8,
    get_values = 9,
    get_values_result = 10,
    unknown_type = 11,
};

enum class Role : std::uint16_t { responder = 1, authorizer = 2, filter = 3 };  // section 5.1

enum class ProtocolStatus : std::uint8_t {  // section 5.5
    request_complete = 0,
    cant_mpx_conn = 1,
    overloaded = 2,
    unknown_role = 3,
};

struct RecordHeader {
    std::uint8_t version = version_1;
    RecordType type = RecordType::begin_request;
    std::uint16_t request_id = 0;
    std::uint16_t content_length = 0;
    std::uint8_t padding_length = 0;
};

// `bytes` holds at least header_size bytes. Any value decodes; whether it makes sense is the reader's
// business.
[[nodiscard]] constexpr RecordHeader decode_header(Bytes bytes) noexcept {
    return {get_u8(bytes, 0), RecordType{get_u8(bytes, 1)}, get_u16_be(bytes, 2), get_u16_be(bytes, 4),
            get_u8(bytes, 6)};
}
// `out` has room for header_size bytes. The version is 1.
constexpr void put_header(MutableBytes out, RecordType type, std::uint16_t id, std::size_t content,
                          std::uint8_t padding) noexcept {
    put_u8(out, 0, version_1);
    put_u8(out, 1, static_cast<std::uint8_t>(type));
    put_u16_be(out, 2, id);
    put_u16_be(out, 4, static_cast<std::uint16_t>(content));
    put_u8(out, 6, padding);
    put_u8(out, 7, 0);
}

}  // namespace cede::protocol::fastcgi
