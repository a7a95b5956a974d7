// SPDX-License-Identifier: Apache-2.0
// Behaviour of lsphp: LSAPI_ForeachHeader_r and LSAPI_ForeachEnv_r in php-src, sapi/litespeed/lsapilib.c.
#include "protocol/lsapi_request_head.h"

#include <algorithm>
#include <array>

#include "protocol/lsapi.h"
#include "protocol/lsapi_request_reader.h"
#include "protocol/variable_name.h"

namespace cede::protocol::lsapi {

namespace {

constexpr std::string_view http_prefix = "HTTP_";

// As $_SERVER has the name of a header.
constexpr char spelled(char letter) noexcept {
    if (letter >= 'a' && letter <= 'z') {
        return static_cast<char>(letter - 'a' + 'A');
    }
    return letter == '-' ? '_' : letter;
}

bool spells(std::string_view header, std::string_view name) noexcept {
    return std::ranges::equal(header, name, {}, spelled);
}

std::optional<std::string_view> find_header(const RequestReader& request, std::string_view name) noexcept {
    const bool of_http = name.starts_with(http_prefix);
    const std::string_view bare = of_http ? name.substr(http_prefix.size()) : name;
    std::optional<std::string_view> found;
    for (std::size_t i = 0; i < validated_headers; ++i) {
        const IndexedHeader which{static_cast<std::uint8_t>(i)};
        const bool plain = which == IndexedHeader::content_type || which == IndexedHeader::content_length;
        if (plain != of_http && spells(indexed_header_names.data()[i], bare)) {
            found = request.header(which);
        }
    }
    for (std::size_t i = 0; of_http && i < request.unknown_headers(); ++i) {
        const NameValue header = request.unknown_header(i);
        found = spells(header.name, bare) ? header.value : found;
    }
    return found;
}

// What PHP would show under this name, whatever the web server calls it.
void hide_variable(const RequestReader& request, std::byte* packet, std::string_view name) noexcept {
    const char* const begin = reinterpret_cast<const char*>(packet);
    for (EnvCursor entries = request.env(); const auto entry = entries.next();) {
        SpelledAs as{name};
        for (const char letter : entry->name) {
            as.feed(letter);
        }
        if (as.same()) {
            packet[entry->name.data() - begin] = std::byte{0};
        }
    }
}

// Where the parts of a packet stand, without and with another entry in its environment.
struct Places {
    std::size_t entry;          // where the new entry goes, and the terminator of the list stands
    std::size_t entry_size;     // of the new one
    std::size_t index;          // before
    std::size_t shifted_index;  // after

    [[nodiscard]] std::size_t growth() const noexcept { return shifted_index - index; }
};

constexpr std::size_t aligned(std::size_t at) noexcept {
    return (at + header_index_align - 1) / header_index_align * header_index_align;
}

// Nothing for an offset into the padding, which does not move as a whole.
std::optional<std::int32_t> moved(std::int32_t offset, const Places& places) noexcept {
    const auto at = static_cast<std::size_t>(offset);
    if (at < places.entry) {
        return offset;
    }
    if (at >= places.index) {
        return static_cast<std::int32_t>(at + places.growth());
    }
    if (at < places.entry + env_terminator_size) {
        return static_cast<std::int32_t>(at + places.entry_size);
    }
    return std::nullopt;
}

void put_entry(MutableBytes out, std::string_view name, std::string_view value) noexcept {
    put_u16_be(out, 0, static_cast<std::uint16_t>(name.size() + 1));
    put_u16_be(out, 2, static_cast<std::uint16_t>(value.size() + 1));
    auto to = out.begin() + env_lengths_size;
    for (const std::string_view text : {name, value}) {
        to = std::ranges::copy(std::as_bytes(std::span{text}), to).out;
        *to++ = std::byte{0};
    }
    // The terminator, and the padding up to the index.
    std::fill(to, out.end(), std::byte{0});
}

}  // namespace

RequestHead read_request_head(Bytes bytes) noexcept {
    RequestReader reader;
    RequestHead head;
    head.outcome = reader.read(bytes);
    head.keep_connection = true;
    if (head.outcome == Outcome::unexpected_type) {
        const PacketHeader header = decode_header(bytes);
        const bool abort = header.type == PacketType::abort_request && header.length == packet_header_size;
        head.head_size = abort ? packet_header_size : 0;
    }
    if (head.outcome != Outcome::done) {
        return head;
    }
    head.head_size = reader.size();
    head.body_length = reader.body_length();
    head.body_here = std::min<std::uint64_t>(head.body_length, bytes.size() - reader.size());
    head.request_complete = head.body_here == head.body_length;
    head.request_size = head.request_complete ? reader.size() + static_cast<std::size_t>(head.body_here) : 0;
    return head;
}

std::optional<std::size_t> find_variable(Bytes head, std::string_view name, MutableBytes value) noexcept {
    RequestReader request;
    if (request.read(head) != Outcome::done) {
        return std::nullopt;
    }
    std::optional<std::string_view> found = find_header(request, name);
    for (EnvCursor entries = request.env(); const auto entry = entries.next();) {
        found = entry->name == name ? entry->value : found;
    }
    if (!found || found->size() > value.size()) {
        return std::nullopt;
    }
    std::ranges::copy(std::as_bytes(std::span{*found}), value.begin());
    return found->size();
}

std::optional<std::size_t> add_variable(MutableBytes buffer, std::size_t used, std::size_t head_size,
                                        std::string_view name, std::string_view value) noexcept {
    constexpr std::array<std::size_t, 4> offset_fields{script_file_at, script_name_at, query_string_at,
                                                       request_method_at};
    RequestReader request;
    if (request.read(buffer.first(head_size)) != Outcome::done || name.size() > max_env_name ||
        value.size() > max_env_value) {
        return std::nullopt;
    }
    const std::endian order = request.order();
    Places places{request.env_end(), env_lengths_size + name.size() + 1 + value.size() + 1, 0, 0};
    places.index = aligned(places.entry + env_terminator_size);
    places.shifted_index = aligned(places.entry + places.entry_size + env_terminator_size);
    const std::size_t size = request.size() + places.growth();
    const std::int32_t entries = get_i32(buffer, env_count_at, order);
    if (size > max_request_packet || places.growth() > buffer.size() - used || entries >= max_env_entries) {
        return std::nullopt;
    }
    std::array<std::int32_t, offset_fields.size()> offsets{};
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        const auto offset = moved(get_i32(buffer, offset_fields.data()[i], order), places);
        if (!offset) {
            return std::nullopt;
        }
        offsets.data()[i] = *offset;
    }
    hide_variable(request, buffer.data(), name);
    const MutableBytes behind = buffer.subspan(places.index, used - places.index);
    std::copy_backward(behind.begin(), behind.end(),
                       behind.end() + static_cast<std::ptrdiff_t>(places.growth()));
    put_entry(buffer.subspan(places.entry, places.shifted_index - places.entry), name, value);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        put_i32(buffer, offset_fields.data()[i], offsets.data()[i], order);
    }
    put_i32(buffer, env_count_at, entries + 1, order);
    put_i32(buffer, 4, static_cast<std::int32_t>(size), order);
    return used + places.growth();
}

}  // namespace cede::protocol::lsapi
