// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/fastcgi.h"
#include "protocol/outcome.h"

// Writers of FastCGI 1.0 records into space of the caller. Each writes its records whole or not at all and
// returns the number of bytes written, or does_not_fit, name_value_too_large or bad_layout.
namespace cede::protocol::fastcgi {

using Written = std::expected<std::size_t, Outcome>;

struct NameValue {
    std::string_view name;
    std::string_view value;
};

// How a stream is cut into records.
struct RecordLayout {
    std::size_t max_content = fastcgi::max_content;  // 1 to 65535
    std::uint8_t padding = 0;                        // zero bytes behind the content of each record
};

// Bytes that the pairs take when encoded, record headers not counted (section 3.4).
[[nodiscard]] std::uint64_t encoded_size(std::span<const NameValue> pairs) noexcept;
// Bytes of the records that a stream of `content` bytes is cut into; 0 for an empty one. `layout` is valid.
[[nodiscard]] std::uint64_t records_size(std::uint64_t content, RecordLayout layout) noexcept;

// From the web server.
[[nodiscard]] Written write_begin_request(MutableBytes out, std::uint16_t id, Role role,
                                          std::uint8_t flags) noexcept;
[[nodiscard]] Written write_abort_request(MutableBytes out, std::uint16_t id) noexcept;
// PARAMS records without the empty one that ends them. Pairs straddle records wherever the layout cuts.
[[nodiscard]] Written write_params(MutableBytes out, std::uint16_t id, std::span<const NameValue> pairs,
                                   RecordLayout layout = {}) noexcept;
// One record; the names are asked with empty values (section 4.1).
[[nodiscard]] Written write_get_values(MutableBytes out, std::span<const std::string_view> names) noexcept;

// Records of a stream (STDIN, STDOUT, STDERR, DATA, or PARAMS that are encoded already), without the empty
// one that ends it. Empty content writes nothing.
[[nodiscard]] Written write_stream(MutableBytes out, RecordType type, std::uint16_t id, Bytes content,
                                   RecordLayout layout = {}) noexcept;
// The empty record that ends a stream.
[[nodiscard]] Written write_stream_end(MutableBytes out, RecordType type, std::uint16_t id) noexcept;

// From the application.
[[nodiscard]] Written write_end_request(MutableBytes out, std::uint16_t id, std::uint32_t app_status,
                                        ProtocolStatus status) noexcept;
[[nodiscard]] Written write_unknown_type(MutableBytes out, RecordType type) noexcept;
// One record: name_value_too_large if the pairs take more than 65535 bytes.
[[nodiscard]] Written write_get_values_result(MutableBytes out, std::span<const NameValue> pairs) noexcept;

}  // namespace cede::protocol::fastcgi
