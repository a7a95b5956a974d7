// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_response_reader.h"

#include <algorithm>

namespace cede::protocol::lsapi {

namespace {

constexpr std::byte nul{0};

std::string_view as_text(Bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

PacketEvent PacketReader::next(Bytes& input) noexcept {
    content_ = {};
    if (in_header_) {
        fill(raw_header_, header_bytes_, packet_header_size, input);
        if (header_bytes_ < packet_header_size) {
            return PacketEvent::need_more;
        }
        header_ = decode_header(raw_header_);
        header_bytes_ = 0;
        in_header_ = false;
        const auto shortest = static_cast<std::int32_t>(packet_header_size);
        content_left_ = static_cast<std::size_t>(std::max(header_.length, shortest) - shortest);
        return PacketEvent::header;
    }
    if (content_left_ > 0) {
        content_ = take(input, content_left_);
        content_left_ -= content_.size();
        return content_.empty() ? PacketEvent::need_more : PacketEvent::content;
    }
    in_header_ = true;
    return PacketEvent::end;
}

std::optional<std::string_view> LineCursor::next() noexcept {
    if (lengths_.empty()) {
        return std::nullopt;
    }
    const Bytes line = text_.first(get_u16(lengths_, 0, order_));
    lengths_ = lengths_.subspan(2);
    text_ = text_.subspan(line.size());
    return as_text(line.first(line.size() - 1));
}

std::size_t ResponseReader::content_size() const noexcept {
    return static_cast<std::size_t>(packets_.header().length) - packet_header_size;
}

ResponseEvent ResponseReader::refuse(Outcome why) noexcept {
    outcome_ = why;
    return ResponseEvent::refused;
}

Outcome ResponseReader::judge_size() const noexcept {
    if (packets_.header().length < static_cast<std::int32_t>(packet_header_size)) {
        return Outcome::bad_packet_size;
    }
    const std::size_t size = content_size();
    bool allowed = false;
    switch (packets_.header().type) {
        case PacketType::resp_header:
            allowed = size >= response_info_size && size <= max_response_header;
            break;
        case PacketType::resp_end:
        case PacketType::conn_close:
            allowed = size == 0;
            break;
        case PacketType::internal_error:
            return size == 0 ? Outcome::done : Outcome::unexpected_type;
        case PacketType::resp_stream:
        case PacketType::stderr_stream:
        case PacketType::req_received:
            allowed = size <= max_data;
            break;
        default:
            return Outcome::unexpected_type;
    }
    return allowed ? Outcome::done : Outcome::bad_packet_size;
}

bool ResponseReader::may_be_pid() const noexcept {
    return packets_.header().type == PacketType::stderr_stream && content_size() == pid_content_size;
}

bool ResponseReader::admit(std::size_t size) noexcept {
    if (size > max_bytes_ - bytes_) {
        return false;
    }
    bytes_ += size;
    return true;
}

Outcome ResponseReader::judge_header() noexcept {
    const PacketHeader& header = packets_.header();
    started_ = started_ || !header.magic || header.type != PacketType::conn_close;
    if (!header.magic) {
        return Outcome::bad_magic;
    }
    if (const Outcome size = judge_size(); size != Outcome::done) {
        return size;
    }
    stored_ = 0;
    if (header.type == PacketType::resp_header) {
        if (body_begun_) {
            return Outcome::head_after_body;
        }
        return content_size() > storage_.size() ? Outcome::head_too_large : Outcome::done;
    }
    if (header.type == PacketType::resp_stream) {
        body_begun_ = body_begun_ || content_size() > 0;
    }
    const bool stream = header.type == PacketType::resp_stream || header.type == PacketType::stderr_stream;
    if (stream && !may_be_pid() && !admit(content_size())) {
        return Outcome::stream_too_large;
    }
    return Outcome::done;
}

ResponseEvent ResponseReader::take_content() noexcept {
    Bytes piece = packets_.content();
    switch (packets_.header().type) {
        case PacketType::resp_header:
            fill(storage_, stored_, content_size(), piece);
            return ResponseEvent::need_more;
        case PacketType::resp_stream:
            content_ = piece;
            return ResponseEvent::body_bytes;
        case PacketType::stderr_stream:
            if (may_be_pid()) {
                fill(short_stderr_, stored_, pid_content_size, piece);
                return ResponseEvent::need_more;
            }
            content_ = piece;
            return ResponseEvent::stderr_bytes;
        default:
            return ResponseEvent::need_more;
    }
}

Outcome ResponseReader::judge_head() noexcept {
    const std::endian order = packets_.header().order;
    const Bytes head = Bytes{storage_}.first(content_size());
    const std::int32_t count = get_i32(head, 0, order);
    if (count < 0 || count > static_cast<std::int32_t>(max_response_lines)) {
        return Outcome::too_many_lines;
    }
    const std::size_t lengths_size = 2 * static_cast<std::size_t>(count);
    if (lengths_size > head.size() - response_info_size) {
        return Outcome::size_mismatch;
    }
    const Bytes lengths = head.subspan(response_info_size, lengths_size);
    const Bytes text = head.subspan(response_info_size + lengths_size);
    Bytes rest = text;
    for (std::size_t at = 0; at < lengths_size; at += 2) {
        const std::size_t length = get_u16(lengths, at, order);
        if (length == 0 || length > max_response_line || length > rest.size() || rest[length - 1] != nul) {
            return Outcome::bad_entry;
        }
        rest = rest.subspan(length);
    }
    if (!rest.empty()) {
        return Outcome::size_mismatch;
    }
    status_ = get_i32(head, 4, order);
    lines_ = LineCursor{lengths, text, order};
    return Outcome::done;
}

ResponseEvent ResponseReader::take_short_stderr() noexcept {
    const Bytes content{short_stderr_};
    if (as_text(content.first(pid_mark.size())) != pid_mark) {
        content_ = content;
        return admit(content.size()) ? ResponseEvent::stderr_bytes : refuse(Outcome::stream_too_large);
    }
    pid_ = get_i32(content, pid_mark.size(), packets_.header().order);
    acknowledged_ = true;
    return ResponseEvent::received;
}

ResponseEvent ResponseReader::take_end_of_packet() noexcept {
    switch (packets_.header().type) {
        case PacketType::resp_header: {
            const Outcome verdict = judge_head();
            return verdict == Outcome::done ? ResponseEvent::head : refuse(verdict);
        }
        case PacketType::stderr_stream:
            return may_be_pid() ? take_short_stderr() : ResponseEvent::need_more;
        case PacketType::req_received:
            acknowledged_ = true;
            return ResponseEvent::received;
        case PacketType::conn_close:
            return ResponseEvent::conn_close;
        case PacketType::resp_end:
            outcome_ = Outcome::done;
            return ResponseEvent::end;
        default:
            return ResponseEvent::need_more;
    }
}

ResponseEvent ResponseReader::next(Bytes& input) noexcept {
    if (outcome_ != Outcome::need_more) {
        return outcome_ == Outcome::done ? ResponseEvent::end : ResponseEvent::refused;
    }
    for (;;) {
        ResponseEvent event = ResponseEvent::need_more;
        switch (packets_.next(input)) {
            case PacketEvent::need_more:
                return ResponseEvent::need_more;
            case PacketEvent::header:
                if (const Outcome verdict = judge_header(); verdict != Outcome::done) {
                    return refuse(verdict);
                }
                break;
            case PacketEvent::content:
                event = take_content();
                break;
            case PacketEvent::end:
                event = take_end_of_packet();
                break;
        }
        if (event != ResponseEvent::need_more) {
            return event;
        }
    }
}

}  // namespace cede::protocol::lsapi
