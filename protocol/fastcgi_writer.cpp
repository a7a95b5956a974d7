// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_writer.h"

#include <algorithm>
#include <utility>

namespace cede::protocol::fastcgi {

namespace {

constexpr std::size_t short_length_limit = 128;  // section 3.4: below it a length takes one byte
constexpr std::uint64_t long_length_limit = 0x80000000;
constexpr std::uint32_t long_length_flag = 0x80000000;

constexpr std::size_t length_size(std::size_t length) noexcept {
    return length < short_length_limit ? 1 : 4;
}

// Puts a stream of known length into records, piece by piece. The space has been checked.
class RecordCutter {
  public:
    RecordCutter(MutableBytes out, RecordType type, std::uint16_t id, std::size_t total,
                 RecordLayout layout) noexcept
        : out_(out), total_left_(total), layout_(layout), id_(id), type_(type) {}

    void put(Bytes piece) noexcept {
        while (!piece.empty()) {
            if (record_left_ == 0) {
                open_record();
            }
            const Bytes part = piece.first(std::min(piece.size(), record_left_));
            std::copy(part.begin(), part.end(), out_.data() + at_);
            at_ += part.size();
            total_left_ -= part.size();
            record_left_ -= part.size();
            piece = piece.subspan(part.size());
            if (record_left_ == 0) {
                std::fill_n(out_.data() + at_, layout_.padding, std::byte{0});
                at_ += layout_.padding;
            }
        }
    }

    void put_length(std::size_t length) noexcept {
        std::byte raw[4];
        if (length < short_length_limit) {
            put_u8(raw, 0, static_cast<std::uint8_t>(length));
        } else {
            put_u32_be(raw, 0, static_cast<std::uint32_t>(length) | long_length_flag);
        }
        put(Bytes{raw, length_size(length)});
    }

    [[nodiscard]] std::size_t written() const noexcept { return at_; }

  private:
    void open_record() noexcept {
        record_left_ = std::min(total_left_, layout_.max_content);
        put_header(out_.subspan(at_), type_, id_, record_left_, layout_.padding);
        at_ += header_size;
    }

    MutableBytes out_;
    std::size_t at_ = 0;
    std::size_t total_left_;
    std::size_t record_left_ = 0;
    RecordLayout layout_;
    std::uint16_t id_;
    RecordType type_;
};

Outcome check_room(MutableBytes out, std::uint64_t content, RecordLayout layout) noexcept {
    if (layout.max_content == 0 || layout.max_content > max_content) {
        return Outcome::bad_layout;
    }
    return records_size(content, layout) > out.size() ? Outcome::does_not_fit : Outcome::done;
}

Written write_pairs(MutableBytes out, RecordType type, std::uint16_t id, std::span<const NameValue> pairs,
                    RecordLayout layout) noexcept {
    for (const NameValue& pair : pairs) {
        if (pair.name.size() >= long_length_limit || pair.value.size() >= long_length_limit) {
            return std::unexpected{Outcome::name_value_too_large};
        }
    }
    const std::uint64_t total = encoded_size(pairs);
    if (const Outcome room = check_room(out, total, layout); room != Outcome::done) {
        return std::unexpected{room};
    }
    RecordCutter cutter{out, type, id, static_cast<std::size_t>(total), layout};
    for (const NameValue& pair : pairs) {
        cutter.put_length(pair.name.size());
        cutter.put_length(pair.value.size());
        cutter.put(std::as_bytes(std::span{pair.name}));
        cutter.put(std::as_bytes(std::span{pair.value}));
    }
    return cutter.written();
}

template <std::size_t size>
Written write_fixed(MutableBytes out, RecordType type, std::uint16_t id,
                    std::span<const std::byte, size> body) noexcept {
    if (out.size() < header_size + size) {
        return std::unexpected{Outcome::does_not_fit};
    }
    put_header(out, type, id, size, 0);
    std::copy(body.begin(), body.end(), out.data() + header_size);
    return header_size + size;
}

}  // namespace

std::uint64_t encoded_size(std::span<const NameValue> pairs) noexcept {
    std::uint64_t total = 0;
    for (const NameValue& pair : pairs) {
        total += length_size(pair.name.size()) + length_size(pair.value.size());
        total += std::uint64_t{pair.name.size()} + pair.value.size();
    }
    return total;
}

std::uint64_t records_size(std::uint64_t content, RecordLayout layout) noexcept {
    const std::uint64_t records = content / layout.max_content + (content % layout.max_content != 0 ? 1 : 0);
    return content + records * (header_size + layout.padding);
}

Written write_begin_request(MutableBytes out, std::uint16_t id, Role role, std::uint8_t flags) noexcept {
    std::byte body[begin_request_body_size] = {};
    put_u16_be(body, 0, static_cast<std::uint16_t>(role));
    put_u8(body, 2, flags);
    return write_fixed(out, RecordType::begin_request, id, std::span{std::as_const(body)});
}

Written write_abort_request(MutableBytes out, std::uint16_t id) noexcept {
    return write_stream_end(out, RecordType::abort_request, id);
}

Written write_params(MutableBytes out, std::uint16_t id, std::span<const NameValue> pairs,
                     RecordLayout layout) noexcept {
    return write_pairs(out, RecordType::params, id, pairs, layout);
}

Written write_get_values(MutableBytes out, std::span<const std::string_view> names) noexcept {
    std::uint64_t total = 0;
    for (const std::string_view name : names) {
        total += length_size(name.size()) + 1 + std::uint64_t{name.size()};
    }
    if (total > max_content) {
        return std::unexpected{Outcome::name_value_too_large};
    }
    if (header_size + total > out.size()) {
        return std::unexpected{Outcome::does_not_fit};
    }
    if (names.empty()) {
        return write_stream_end(out, RecordType::get_values, management_request_id);
    }
    RecordCutter cutter{
        out, RecordType::get_values, management_request_id, static_cast<std::size_t>(total), {}};
    for (const std::string_view name : names) {
        cutter.put_length(name.size());
        cutter.put_length(0);
        cutter.put(std::as_bytes(std::span{name}));
    }
    return cutter.written();
}

Written write_stream(MutableBytes out, RecordType type, std::uint16_t id, Bytes content,
                     RecordLayout layout) noexcept {
    if (const Outcome room = check_room(out, content.size(), layout); room != Outcome::done) {
        return std::unexpected{room};
    }
    RecordCutter cutter{out, type, id, content.size(), layout};
    cutter.put(content);
    return cutter.written();
}

Written write_stream_end(MutableBytes out, RecordType type, std::uint16_t id) noexcept {
    if (out.size() < header_size) {
        return std::unexpected{Outcome::does_not_fit};
    }
    put_header(out, type, id, 0, 0);
    return header_size;
}

Written write_end_request(MutableBytes out, std::uint16_t id, std::uint32_t app_status,
                          ProtocolStatus status) noexcept {
    std::byte body[end_request_body_size] = {};
    put_u32_be(body, 0, app_status);
    put_u8(body, 4, static_cast<std::uint8_t>(status));
    return write_fixed(out, RecordType::end_request, id, std::span{std::as_const(body)});
}

Written write_unknown_type(MutableBytes out, RecordType type) noexcept {
    std::byte body[unknown_type_body_size] = {};
    put_u8(body, 0, static_cast<std::uint8_t>(type));
    return write_fixed(out, RecordType::unknown_type, management_request_id, std::span{std::as_const(body)});
}

Written write_get_values_result(MutableBytes out, std::span<const NameValue> pairs) noexcept {
    if (encoded_size(pairs) > max_content) {
        return std::unexpected{Outcome::name_value_too_large};
    }
    if (pairs.empty()) {
        return write_stream_end(out, RecordType::get_values_result, management_request_id);
    }
    return write_pairs(out, RecordType::get_values_result, management_request_id, pairs, {});
}

}  // namespace cede::protocol::fastcgi
