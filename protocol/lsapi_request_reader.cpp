// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_request_reader.h"

#include <algorithm>

#include "protocol/lsapi_content_length.h"

namespace cede::protocol::lsapi {

namespace {

constexpr std::byte nul{0};

std::string_view as_text(Bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes of a field that carries a NUL at its end, without it.
std::string_view without_nul(Bytes bytes) noexcept {
    return as_text(bytes.first(bytes.size() - 1));
}

}  // namespace

std::optional<NameValue> EnvCursor::next() noexcept {
    if (rest_.empty()) {
        return std::nullopt;
    }
    const std::size_t name_size = get_u16_be(rest_, 0);
    const std::size_t value_size = get_u16_be(rest_, 2);
    const Bytes name = rest_.subspan(env_lengths_size, name_size);
    const Bytes value = rest_.subspan(env_lengths_size + name_size, value_size);
    rest_ = rest_.subspan(env_lengths_size + name_size + value_size);
    return NameValue{without_nul(name), without_nul(value)};
}

Outcome RequestReader::read(Bytes bytes) noexcept {
    if (bytes.size() < packet_header_size) {
        return Outcome::need_more;
    }
    const PacketHeader header = decode_header(bytes);
    if (!header.magic) {
        return Outcome::bad_magic;
    }
    if (header.type != PacketType::begin_request) {
        return Outcome::unexpected_type;
    }
    if (header.length < static_cast<std::int32_t>(request_header_size) ||
        header.length > static_cast<std::int32_t>(max_request_packet)) {
        return Outcome::bad_packet_size;
    }
    const auto size = static_cast<std::size_t>(header.length);
    if (bytes.size() < size) {
        return Outcome::need_more;
    }
    RequestReader next;
    next.packet_ = bytes.first(size);
    next.order_ = header.order;
    const Outcome outcome = next.parse();
    if (outcome == Outcome::done) {
        *this = next;
    }
    return outcome;
}

Outcome RequestReader::parse() noexcept {
    std::size_t at = request_header_size;
    if (const Outcome list = take_list(field(special_env_count_at), at, special_env_);
        list != Outcome::done) {
        return list;
    }
    if (const Outcome list = take_list(field(env_count_at), at, env_); list != Outcome::done) {
        return list;
    }
    if (!is_text(field(script_file_at)) || !is_text(field(script_name_at)) ||
        !is_text(field(query_string_at)) || !is_text(field(request_method_at))) {
        return Outcome::bad_offset;
    }
    if (const Outcome blocks = take_blocks(at); blocks != Outcome::done) {
        return blocks;
    }
    const std::int32_t announced = announced_body_length();
    body_length_ = announced > 0 ? static_cast<std::uint64_t>(announced) : 0;
    if (announced == body_length_in_header) {
        ContentLength length;
        length.feed(
            std::as_bytes(std::span{header(IndexedHeader::content_length).value_or(std::string_view{})}));
        body_length_ = length.value();
    }
    return Outcome::done;
}

Outcome RequestReader::take_list(std::int32_t count, std::size_t& at, Bytes& list) const noexcept {
    if (count < 0 || count > max_env_entries) {
        return Outcome::too_many_pairs;
    }
    Bytes rest = packet_.subspan(at);
    for (std::int32_t i = 0; i < count; ++i) {
        if (rest.size() < env_lengths_size) {
            return Outcome::bad_entry;
        }
        const std::size_t name_size = get_u16_be(rest, 0);
        const std::size_t size = name_size + get_u16_be(rest, 2);
        rest = rest.subspan(env_lengths_size);
        if (name_size == 0 || size == name_size || size > rest.size() || rest[name_size - 1] != nul ||
            rest[size - 1] != nul) {
            return Outcome::bad_entry;
        }
        rest = rest.subspan(size);
    }
    if (rest.size() < env_terminator_size || get_u32_be(rest, 0) != 0) {
        return Outcome::bad_entry;
    }
    list = packet_.subspan(at, packet_.size() - at - rest.size());
    at += list.size() + env_terminator_size;
    return Outcome::done;
}

// Header index, unknown headers and HTTP header block must fill the rest of the packet exactly.
Outcome RequestReader::take_blocks(std::size_t at) noexcept {
    const std::size_t index_at = (at + header_index_align - 1) / header_index_align * header_index_align;
    const std::int64_t unknown = field(unknown_headers_at);
    const std::int64_t block = field(http_header_length_at);
    const std::int64_t unknown_size = unknown * std::int64_t{unknown_header_size};
    if (unknown < 0 || block < 0 ||
        static_cast<std::int64_t>(index_at + header_index_size) + unknown_size + block !=
            static_cast<std::int64_t>(packet_.size())) {
        return Outcome::size_mismatch;
    }
    index_ = packet_.subspan(index_at, header_index_size);
    unknown_ = packet_.subspan(index_at + header_index_size, static_cast<std::size_t>(unknown_size));
    block_ = packet_.last(static_cast<std::size_t>(block));
    return check_headers();
}

bool RequestReader::in_block(std::int32_t offset, std::int64_t length) const noexcept {
    return offset >= 0 && length >= 0 && offset + length <= static_cast<std::int64_t>(block_.size());
}

Outcome RequestReader::check_headers() const noexcept {
    for (std::size_t i = 0; i < validated_headers; ++i) {
        const std::int32_t offset = get_i32(index_, header_offsets_at + 4 * i, order_);
        if (offset != 0 && !in_block(offset, get_u16(index_, 2 * i, order_))) {
            return Outcome::bad_offset;
        }
    }
    for (std::size_t at = 0; at < unknown_.size(); at += unknown_header_size / 2) {
        if (!in_block(get_i32(unknown_, at, order_), get_i32(unknown_, at + 4, order_))) {
            return Outcome::bad_offset;
        }
    }
    return Outcome::done;
}

bool RequestReader::is_text(std::int32_t offset) const noexcept {
    if (offset <= 0) {
        return offset == 0;
    }
    const auto at = static_cast<std::size_t>(offset);
    return at < packet_.size() && std::find(packet_.begin() + offset, packet_.end(), nul) != packet_.end();
}

std::string_view RequestReader::text(std::int32_t offset) const noexcept {
    if (offset == 0) {
        return {};
    }
    const Bytes rest = packet_.subspan(static_cast<std::size_t>(offset));
    const auto size = std::find(rest.begin(), rest.end(), nul) - rest.begin();
    return as_text(rest.first(static_cast<std::size_t>(size)));
}

std::optional<std::string_view> RequestReader::header(IndexedHeader which) const noexcept {
    const auto i = static_cast<std::size_t>(which);
    const std::int32_t offset = get_i32(index_, header_offsets_at + 4 * i, order_);
    const std::size_t length = get_u16(index_, 2 * i, order_);
    if (offset == 0 || !in_block(offset, static_cast<std::int64_t>(length))) {
        return std::nullopt;
    }
    return as_text(block_.subspan(static_cast<std::size_t>(offset), length));
}

NameValue RequestReader::unknown_header(std::size_t which) const noexcept {
    const auto part = [&](std::size_t at) {
        return as_text(block_.subspan(static_cast<std::size_t>(get_i32(unknown_, at, order_)),
                                      static_cast<std::size_t>(get_i32(unknown_, at + 4, order_))));
    };
    const std::size_t at = which * unknown_header_size;
    return {part(at), part(at + unknown_header_size / 2)};
}

std::string_view RequestReader::http_block() const noexcept {
    return as_text(block_);
}

}  // namespace cede::protocol::lsapi
