// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_reader.h"

namespace cede::protocol::fastcgi {

namespace {

constexpr std::uint8_t long_length_flag = 0x80;
constexpr std::uint32_t long_length_mask = 0x7fffffff;

}  // namespace

bool RecordReader::read_header(Bytes& input) noexcept {
    fill(raw_header_, header_bytes_, header_size, input);
    if (header_bytes_ < header_size) {
        return false;
    }
    header_ = decode_header(raw_header_);
    header_bytes_ = 0;
    content_left_ = header_.content_length;
    padding_left_ = header_.padding_length;
    in_header_ = false;
    return true;
}

RecordEvent RecordReader::next(Bytes& input) noexcept {
    content_ = {};
    if (in_header_) {
        return read_header(input) ? RecordEvent::header : RecordEvent::need_more;
    }
    if (content_left_ > 0) {
        content_ = take(input, content_left_);
        content_left_ -= content_.size();
        return content_.empty() ? RecordEvent::need_more : RecordEvent::content;
    }
    padding_left_ -= take(input, padding_left_).size();
    if (padding_left_ > 0) {
        return RecordEvent::need_more;
    }
    in_header_ = true;
    return RecordEvent::end;
}

bool NameValueReader::read_length(Bytes& input, std::uint32_t& length) noexcept {
    if (raw_length_bytes_ == 0) {
        fill(raw_length_, raw_length_bytes_, 1, input);
    }
    if (raw_length_bytes_ == 0) {
        return false;
    }
    if ((get_u8(raw_length_, 0) & long_length_flag) == 0) {
        length = get_u8(raw_length_, 0);
    } else {
        fill(raw_length_, raw_length_bytes_, raw_length_.size(), input);
        if (raw_length_bytes_ < raw_length_.size()) {
            return false;
        }
        length = get_u32_be(raw_length_, 0) & long_length_mask;
    }
    raw_length_bytes_ = 0;
    return true;
}

Outcome NameValueReader::admit_bytes(std::size_t consumed) noexcept {
    stream_bytes_ += consumed;
    return stream_bytes_ > limits_.stream_bytes ? Outcome::stream_too_large : Outcome::need_more;
}

Outcome NameValueReader::admit_pair() noexcept {
    const std::uint64_t size = std::uint64_t{name_length_} + value_length_;
    if (size > storage_.size()) {
        return Outcome::name_value_too_large;
    }
    if (size > limits_.stream_bytes - stream_bytes_) {
        return Outcome::stream_too_large;
    }
    if (++pairs_ > limits_.pairs) {
        return Outcome::too_many_pairs;
    }
    return Outcome::done;
}

// done: both lengths are known and admitted.
Outcome NameValueReader::read_lengths(Bytes& input) noexcept {
    const std::size_t before = input.size();
    bool complete = true;
    if (part_ == Part::name_length) {
        std::uint32_t length = 0;
        complete = read_length(input, length);
        if (complete) {
            name_length_ = length;
            value_length_ = 0;
            part_ = Part::value_length;
        }
    }
    complete = complete && read_length(input, value_length_);
    const Outcome bytes = admit_bytes(before - input.size());
    if (bytes != Outcome::need_more || !complete) {
        return bytes;
    }
    part_ = Part::body;
    stored_ = 0;
    return admit_pair();
}

Outcome NameValueReader::next(Bytes& input) noexcept {
    if (refused_ != Outcome::need_more) {
        return refused_;
    }
    if (part_ != Part::body) {
        const Outcome outcome = read_lengths(input);
        if (outcome != Outcome::done) {
            if (outcome != Outcome::need_more) {
                refused_ = outcome;
                name_length_ = value_length_ = 0;
            }
            return outcome;
        }
    }
    const std::size_t before = input.size();
    const std::size_t wanted = std::size_t{name_length_} + value_length_;
    fill(storage_, stored_, wanted, input);
    stream_bytes_ += before - input.size();
    if (stored_ < wanted) {
        return Outcome::need_more;
    }
    part_ = Part::name_length;
    return Outcome::done;
}

Outcome NameValueReader::finish() const noexcept {
    if (refused_ != Outcome::need_more) {
        return refused_;
    }
    return part_ == Part::name_length && raw_length_bytes_ == 0 ? Outcome::done : Outcome::truncated;
}

ResponseEvent ResponseReader::refuse(Outcome why) noexcept {
    outcome_ = why;
    return ResponseEvent::refused;
}

Outcome ResponseReader::judge_header() noexcept {
    const RecordHeader& header = records_.header();
    started_ = true;
    if (header.version != version_1) {
        return Outcome::bad_version;
    }
    const bool is_stdout = header.type == RecordType::stdout_stream;
    const bool is_stderr = header.type == RecordType::stderr_stream;
    if (!is_stdout && !is_stderr && header.type != RecordType::end_request) {
        return Outcome::unexpected_type;
    }
    if (header.request_id != request_id_) {
        return Outcome::unexpected_id;
    }
    if (!is_stdout && !is_stderr) {
        return header.content_length == end_request_body_size ? Outcome::done : Outcome::bad_body_size;
    }
    bool& ended = is_stdout ? stdout_ended_ : stderr_ended_;
    if (ended) {
        return Outcome::data_after_end;
    }
    ended = header.content_length == 0;
    if (header.content_length > max_bytes_ - bytes_) {
        return Outcome::stream_too_large;
    }
    bytes_ += header.content_length;
    return Outcome::done;
}

ResponseEvent ResponseReader::take_content() noexcept {
    switch (records_.header().type) {
        case RecordType::stdout_stream:
            return ResponseEvent::stdout_bytes;
        case RecordType::stderr_stream:
            return ResponseEvent::stderr_bytes;
        default:
            Bytes piece = records_.content();
            fill(end_body_, end_body_bytes_, end_request_body_size, piece);
            return ResponseEvent::need_more;
    }
}

ResponseEvent ResponseReader::take_end_of_record() noexcept {
    if (records_.header().type != RecordType::end_request) {
        return ResponseEvent::need_more;
    }
    const std::uint8_t status = get_u8(end_body_, 4);
    if (status > static_cast<std::uint8_t>(ProtocolStatus::unknown_role)) {
        return refuse(Outcome::unknown_status);
    }
    app_status_ = get_u32_be(end_body_, 0);
    protocol_status_ = ProtocolStatus{status};
    outcome_ = Outcome::done;
    return ResponseEvent::end_request;
}

ResponseEvent ResponseReader::next(Bytes& input) noexcept {
    if (outcome_ != Outcome::need_more) {
        return outcome_ == Outcome::done ? ResponseEvent::end_request : ResponseEvent::refused;
    }
    for (;;) {
        ResponseEvent event = ResponseEvent::need_more;
        switch (records_.next(input)) {
            case RecordEvent::need_more:
                return ResponseEvent::need_more;
            case RecordEvent::header:
                if (const Outcome verdict = judge_header(); verdict != Outcome::done) {
                    return refuse(verdict);
                }
                break;
            case RecordEvent::content:
                event = take_content();
                break;
            case RecordEvent::end:
                event = take_end_of_record();
                break;
        }
        if (event != ResponseEvent::need_more) {
            return event;
        }
    }
}

}  // namespace cede::protocol::fastcgi
