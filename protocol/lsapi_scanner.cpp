// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_scanner.h"

#include <algorithm>

namespace cede::protocol::lsapi {

namespace {

// The part of `piece`, which stands at offset `at`, that lies in the window of `size` bytes from `from`.
Bytes overlap(Bytes piece, std::size_t at, std::size_t from, std::size_t size) noexcept {
    const std::size_t begin = std::max(at, from);
    const std::size_t end = std::min(at + piece.size(), from + size);
    return begin < end ? piece.subspan(begin - at, end - begin) : Bytes{};
}

void copy_overlap(Bytes piece, std::size_t at, std::size_t from, MutableBytes window) noexcept {
    const Bytes part = overlap(piece, at, from, window.size());
    if (!part.empty()) {
        std::copy(part.begin(), part.end(), window.data() + (std::max(at, from) - from));
    }
}

}  // namespace

std::size_t PacketTracker::step(Bytes bytes, bool& begun, bool& ended) noexcept {
    begun = false;
    ended = false;
    if (lost_) {
        return bytes.size();
    }
    if (left_ > 0) {
        const std::size_t taken = std::min<std::size_t>(left_, bytes.size());
        left_ -= static_cast<std::uint32_t>(taken);
        ended = left_ == 0 && taken > 0;
        return taken;
    }
    std::size_t taken = 0;
    while (have_ < packet_header_size && taken < bytes.size()) {
        partial_[have_++] = bytes.data()[taken++];
    }
    if (have_ == packet_header_size) {
        current_ = decode_header(Bytes{partial_, packet_header_size});
        have_ = 0;
        if (!current_.magic || current_.length < static_cast<std::int32_t>(packet_header_size)) {
            lose();
            return bytes.size();
        }
        length_ = static_cast<std::uint32_t>(current_.length);
        left_ = length_ - static_cast<std::uint32_t>(packet_header_size);
        begun = true;
        ended = left_ == 0;
    }
    return taken;
}

void BodyLengthFinder::pass(const PacketHeader& header, Bytes piece, std::size_t at) noexcept {
    copy_overlap(piece, at, fields_at, fields_);
    if (at + piece.size() >= request_header_size &&
        get_i32(fields_, body_length_at - fields_at, header.order) == body_length_in_header) {
        pass_value(header, piece, at);
    }
}

void BodyLengthFinder::pass_value(const PacketHeader& header, Bytes piece, std::size_t at) noexcept {
    const std::int64_t block_size = get_i32(fields_, 0, header.order);
    const std::int64_t unknown = get_i32(fields_, unknown_headers_at - fields_at, header.order);
    const std::int64_t block = header.length - block_size;
    const std::int64_t index =
        block - unknown * std::int64_t{unknown_header_size} - std::int64_t{header_index_size};
    if (block_size < 0 || unknown < 0 || index < std::int64_t{request_header_size}) {
        return;  // lsphp refuses it: the parts do not add up to the length
    }
    constexpr auto entry = static_cast<std::size_t>(IndexedHeader::content_length);
    const auto index_at = static_cast<std::size_t>(index);
    copy_overlap(piece, at, index_at + 2 * entry, value_length_);
    copy_overlap(piece, at, index_at + header_offsets_at + 4 * entry, value_offset_);
    const auto block_at = static_cast<std::size_t>(block);
    const std::int32_t offset = get_i32(value_offset_, 0, header.order);
    // The block comes behind the index, so that a piece that reaches into it has completed the index.
    if (at + piece.size() > block_at && offset > 0) {
        content_length_.feed(overlap(piece, at, block_at + static_cast<std::size_t>(offset),
                                     get_u16(value_length_, 0, header.order)));
    }
}

std::uint64_t BodyLengthFinder::result(const PacketHeader& header) const noexcept {
    const std::int32_t length = get_i32(fields_, body_length_at - fields_at, header.order);
    if (length == body_length_in_header) {
        return content_length_.value();
    }
    return length > 0 ? static_cast<std::uint64_t>(length) : 0;
}

void RequestScanner::begin_packet() noexcept {
    const auto length = static_cast<std::size_t>(header().length);
    const bool request = header().type == PacketType::begin_request;
    if (length > max_request_packet || (request && length < request_header_size)) {
        lose();
    } else if (request) {
        ++begun_;
        head_complete_ = false;
        body_length_ = {};
    }
}

std::size_t RequestScanner::advance(Bytes bytes) noexcept {
    if (body_left_ > 0) {
        const std::size_t taken = bytes.size() < body_left_ ? bytes.size() : std::size_t{body_left_};
        body_left_ -= taken;
        return taken;
    }
    bool begun = false;
    bool ended = false;
    const std::size_t at = passed();
    const std::size_t taken = step(bytes, begun, ended);
    if (begun) {
        begin_packet();
    } else if (at > 0 && header().type == PacketType::begin_request) {
        body_length_.pass(header(), bytes.first(taken), at);
        if (ended) {
            head_complete_ = true;
            body_left_ = body_length_.result(header());
        }
    }
    return taken;
}

std::size_t RequestScanner::feed_to_boundary(Bytes bytes) noexcept {
    std::size_t consumed = 0;
    while (consumed < bytes.size()) {
        consumed += advance(bytes.subspan(consumed));
        if (at_boundary()) {
            break;
        }
    }
    return consumed;
}

void RequestScanner::feed(Bytes bytes) noexcept {
    while (!bytes.empty()) {
        bytes = bytes.subspan(advance(bytes));
    }
}

void ResponseScanner::feed(Bytes bytes) noexcept {
    while (!bytes.empty()) {
        bool begun = false;
        bool ended = false;
        bytes = bytes.subspan(step(bytes, begun, ended));
        if (ended && header().type == PacketType::resp_end) {
            ++ended_;
        }
        close_announced_ = close_announced_ || (ended && header().type == PacketType::conn_close);
    }
}

}  // namespace cede::protocol::lsapi
