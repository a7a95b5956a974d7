// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/lsapi.h"
#include "protocol/outcome.h"

// Reader of an LSAPI request that lies in memory. It allocates nothing and calls nothing. docs/lsapi.md has
// the grammar and the limits.
namespace cede::protocol::lsapi {

// Walks over one of the environment lists of a request that RequestReader has accepted.
class EnvCursor {
  public:
    EnvCursor() = default;
    explicit EnvCursor(Bytes entries) noexcept : rest_(entries) {}
    // The next entry, its NULs left out; nothing behind the last. Points into the packet.
    [[nodiscard]] std::optional<NameValue> next() noexcept;

  private:
    Bytes rest_;
};

// The application's side: a BEGIN_REQUEST packet, checked against every limit that lsphp has, and beyond it
// for negative counts and offsets, and for values without their NUL. Everything handed out points into the
// packet, which must outlive it.
class RequestReader {
  public:
    // `bytes` begins with the packet; a body may follow. done: all that is below is valid. need_more: the
    // packet is not complete. bad_magic, unexpected_type, bad_packet_size: told by its header alone.
    // too_many_pairs, bad_entry, bad_offset, size_mismatch: told once it is complete. Unless done, the reader
    // keeps what it had.
    [[nodiscard]] Outcome read(Bytes bytes) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return packet_.size(); }
    [[nodiscard]] std::endian order() const noexcept { return order_; }
    // Bytes of the body behind the packet: as announced, or what Content-Length says if that was announced.
    [[nodiscard]] std::uint64_t body_length() const noexcept { return body_length_; }
    // As it stands in the packet: body_length_in_header and other negative numbers, too.
    [[nodiscard]] std::int32_t announced_body_length() const noexcept { return field(body_length_at); }

    // Empty when the web server gave none (offset 0).
    [[nodiscard]] std::string_view script_file() const noexcept { return text(field(script_file_at)); }
    [[nodiscard]] std::string_view script_name() const noexcept { return text(field(script_name_at)); }
    [[nodiscard]] std::string_view query_string() const noexcept { return text(field(query_string_at)); }
    [[nodiscard]] std::string_view request_method() const noexcept { return text(field(request_method_at)); }

    [[nodiscard]] EnvCursor env() const noexcept { return EnvCursor{env_}; }
    // Where the terminator of env() stands in the packet.
    [[nodiscard]] std::size_t env_end() const noexcept {
        return static_cast<std::size_t>(env_.data() + env_.size() - packet_.data());
    }
    // Names begin with a marker: 1 and another byte for a PHP setting, 0 for suEXEC.
    [[nodiscard]] EnvCursor special_env() const noexcept { return EnvCursor{special_env_}; }

    // The value that the index has for it; Transfer-Encoding also only if it lies inside the block.
    [[nodiscard]] std::optional<std::string_view> header(IndexedHeader which) const noexcept;
    [[nodiscard]] std::size_t unknown_headers() const noexcept {
        return unknown_.size() / unknown_header_size;
    }
    // `which` is below unknown_headers().
    [[nodiscard]] NameValue unknown_header(std::size_t which) const noexcept;
    // Request line, headers and blank line, with whatever the web server put in front of them.
    [[nodiscard]] std::string_view http_block() const noexcept;

  private:
    [[nodiscard]] std::int32_t field(std::size_t at) const noexcept { return get_i32(packet_, at, order_); }
    [[nodiscard]] std::string_view text(std::int32_t offset) const noexcept;
    [[nodiscard]] bool is_text(std::int32_t offset) const noexcept;
    Outcome parse() noexcept;
    Outcome take_list(std::int32_t count, std::size_t& at, Bytes& list) const noexcept;
    Outcome take_blocks(std::size_t at) noexcept;
    [[nodiscard]] bool in_block(std::int32_t offset, std::int64_t length) const noexcept;
    [[nodiscard]] Outcome check_headers() const noexcept;

    Bytes packet_;
    std::endian order_ = std::endian::native;
    Bytes special_env_;
    Bytes env_;
    Bytes index_;
    Bytes unknown_;
    Bytes block_;
    std::uint64_t body_length_ = 0;
};

}  // namespace cede::protocol::lsapi
