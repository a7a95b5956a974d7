// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/bytes.h"

// Wire constants of LSAPI. There is no specification; the public source is php-src, sapi/litespeed, whose
// names from lsapidef.h stand in the comments. docs/lsapi.md has the grammar and what both sides make of it.
namespace cede::protocol::lsapi {

inline constexpr std::uint8_t magic_0 = 'L';          // LSAPI_VERSION_B0
inline constexpr std::uint8_t magic_1 = 'S';          // LSAPI_VERSION_B1
inline constexpr std::size_t packet_header_size = 8;  // struct lsapi_packet_header

enum class PacketType : std::uint8_t {
    begin_request = 1,   // to PHP; the body follows behind the packet, raw
    abort_request = 2,   // to PHP, which has no use for it; the web server closes right behind it
    resp_header = 3,     // to the web server, like all that follow
    resp_stream = 4,     // a piece of the body
    resp_end = 5,        // the answer is complete; the connection can be used again
    stderr_stream = 6,   // for the log; one of the form `pid_mark` and a pid is an acknowledgement instead
    req_received = 7,    // acknowledgement: the request was read and its script starts
    conn_close = 8,      // "close this connection once idle"
    internal_error = 9,  // PHP never sends it
};

// --- numbers of a packet: little or big endian, as the flag of its header says ---

// LSAPI_ENDIAN: what lsapidef.h takes for native. It knows x86 to be little endian and calls every other
// processor big endian, aarch64 included, which then writes its native little-endian numbers under a flag
// that says big. So a flag says "the sender's order is mine" or "is not", and on such a machine 1 means
// native.
#if defined(__i386__) || defined(__x86_64__)
inline constexpr std::uint8_t native_flag = 0;
#else
inline constexpr std::uint8_t native_flag = 1;
#endif

// The order that a library which calls itself `own_flag` and stores numbers in `own` order takes `flag` for.
// Only bit 0 counts (LSAPI_ENDIAN_BIT).
[[nodiscard]] constexpr std::endian order_of(std::uint8_t flag, std::uint8_t own_flag,
                                             std::endian own) noexcept {
    const std::endian other = own == std::endian::little ? std::endian::big : std::endian::little;
    return (flag & 1U) == own_flag ? own : other;
}
[[nodiscard]] constexpr std::endian order_of(std::uint8_t flag) noexcept {
    return order_of(flag, native_flag, std::endian::native);
}
[[nodiscard]] constexpr std::uint8_t flag_of(std::endian order) noexcept {
    return order == order_of(0) ? 0 : 1;
}

struct PacketHeader {
    bool magic = false;  // begins with "LS"
    PacketType type = PacketType::begin_request;
    std::endian order = std::endian::native;
    std::int32_t length = 0;  // of the whole packet with this header; a request's body is not counted
};

// `bytes` holds at least packet_header_size bytes. Any value decodes; whether it makes sense is the reader's
// business.
[[nodiscard]] constexpr PacketHeader decode_header(Bytes bytes) noexcept {
    const std::endian order = order_of(get_u8(bytes, 3));
    return {get_u8(bytes, 0) == magic_0 && get_u8(bytes, 1) == magic_1, PacketType{get_u8(bytes, 2)}, order,
            get_i32(bytes, 4, order)};
}
constexpr void put_header(MutableBytes out, PacketType type, std::int32_t length,
                          std::endian order = std::endian::native) noexcept {
    put_u8(out, 0, magic_0);
    put_u8(out, 1, magic_1);
    put_u8(out, 2, static_cast<std::uint8_t>(type));
    put_u8(out, 3, flag_of(order));
    put_i32(out, 4, length, order);
}

// A packet that is a header and nothing else: ABORT_REQUEST, RESP_END, REQ_RECEIVED, CONN_CLOSE.
[[nodiscard]] constexpr std::array<std::byte, packet_header_size> bare_packet(
    PacketType type, std::endian order = std::endian::native) noexcept {
    std::array<std::byte, packet_header_size> packet{};
    put_header(packet, type, packet_header_size, order);
    return packet;
}

// --- BEGIN_REQUEST ---

inline constexpr std::size_t max_request_packet = 65535;  // LSAPI_MAX_HEADER_LEN
inline constexpr std::size_t request_header_size = 44;    // struct lsapi_req_header
// Offsets in struct lsapi_req_header, an int32 each.
inline constexpr std::size_t http_header_length_at = 8;
inline constexpr std::size_t body_length_at = 12;
inline constexpr std::size_t script_file_at = 16;  // offsets of values, from the start of the packet; 0: none
inline constexpr std::size_t script_name_at = 20;
inline constexpr std::size_t query_string_at = 24;
inline constexpr std::size_t request_method_at = 28;
inline constexpr std::size_t unknown_headers_at = 32;
inline constexpr std::size_t env_count_at = 36;
inline constexpr std::size_t special_env_count_at = 40;
// The body's length is what the Content-Length header says. Any other negative length means no body.
inline constexpr std::int32_t body_length_in_header = -2;

inline constexpr std::int32_t max_env_entries = 8192;   // in each of the two lists
inline constexpr std::size_t env_lengths_size = 4;      // two numbers in front of an entry, always big endian
inline constexpr std::size_t env_terminator_size = 4;   // zero bytes behind each list
inline constexpr std::size_t max_env_name = 1024;       // web server; a longer one is counted and not sent
inline constexpr std::size_t max_env_value = 65534;     // its length with the NUL is 16 bits wide
inline constexpr std::size_t header_index_align = 8;    // of the index, from the start of the packet
inline constexpr std::size_t header_index_size = 152;   // struct lsapi_http_header_index
inline constexpr std::size_t header_offsets_at = 52;    // in the index; the lengths stand at 0
inline constexpr std::size_t unknown_header_size = 16;  // struct lsapi_header_offset

// H_ACCEPT and so on: the headers that the index has a place for.
enum class IndexedHeader : std::uint8_t {
    accept,
    accept_charset,
    accept_encoding,
    accept_language,
    authorization,
    connection,
    content_type,
    content_length,
    cookie,
    cookie2,
    host,
    pragma,
    referer,
    user_agent,
    cache_control,
    if_modified_since,
    if_match,
    if_none_match,
    if_range,
    if_unmodified_since,
    keep_alive,
    range,
    x_forwarded_for,
    via,
    transfer_encoding,  // has a place, but PHP neither validates nor exports it
};
inline constexpr std::array<std::string_view, 25> indexed_header_names = {"Accept",
                                                                          "Accept-Charset",
                                                                          "Accept-Encoding",
                                                                          "Accept-Language",
                                                                          "Authorization",
                                                                          "Connection",
                                                                          "Content-Type",
                                                                          "Content-Length",
                                                                          "Cookie",
                                                                          "Cookie2",
                                                                          "Host",
                                                                          "Pragma",
                                                                          "Referer",
                                                                          "User-Agent",
                                                                          "Cache-Control",
                                                                          "If-Modified-Since",
                                                                          "If-Match",
                                                                          "If-None-Match",
                                                                          "If-Range",
                                                                          "If-Unmodified-Since",
                                                                          "Keep-Alive",
                                                                          "Range",
                                                                          "X-Forwarded-For",
                                                                          "Via",
                                                                          "Transfer-Encoding"};
inline constexpr std::size_t validated_headers = 24;  // all but the last

struct NameValue {
    std::string_view name;
    std::string_view value;
};

// --- the answer ---

inline constexpr std::size_t max_data =
    16384;  // LSAPI_MAX_DATA_PACKET_LEN: content of RESP_STREAM and others
inline constexpr std::size_t response_info_size = 8;       // struct lsapi_resp_info: number of lines, status
inline constexpr std::size_t max_response_header = 65535;  // web server: RESP_HEADER behind its packet header
inline constexpr std::size_t max_response_lines = 4095;    // web server
inline constexpr std::size_t max_sent_lines = 1000;        // LSAPI_MAX_RESP_HEADERS: PHP sends no more
inline constexpr std::size_t max_response_line = 32767;    // with its NUL; int16 on the wire
inline constexpr std::string_view pid_mark{"\0PID", 4};    // STDERR_STREAM of this and an int32 pid
inline constexpr std::size_t pid_content_size = 8;

}  // namespace cede::protocol::lsapi
