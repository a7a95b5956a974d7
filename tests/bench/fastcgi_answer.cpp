// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fastcgi_answer.h"

namespace cede::bench {

using protocol::fastcgi::ProtocolStatus;
using protocol::fastcgi::ResponseEvent;

namespace {

constexpr std::string_view head_end = "\r\n\r\n";
constexpr std::string_view status_header = "Status: ";
constexpr std::size_t status_end = status_header.size() + 3;
constexpr unsigned unavailable = 503;

}  // namespace

void FastcgiAnswer::begin() noexcept {
    reader_ = protocol::fastcgi::ResponseReader{request_id};
    head_bytes_ = 0;
    line_end_bytes_ = 0;
    status_line_ = true;
    status_ = 0;
    failure_ = Failure::none;
}

void FastcgiAnswer::check_output(std::string_view piece, BodyCheck& body) noexcept {
    std::size_t at = 0;
    while (at < piece.size() && line_end_bytes_ < head_end.size()) {
        const char byte = piece[at++];
        if (status_line_ && head_bytes_ < status_header.size()) {
            status_line_ = byte == status_header[head_bytes_];
        } else if (status_line_ && head_bytes_ < status_end) {
            status_ = status_ * 10 + static_cast<unsigned char>(byte - '0');
        }
        ++head_bytes_;
        if (byte == head_end[line_end_bytes_]) {
            ++line_end_bytes_;
        } else {
            line_end_bytes_ = byte == '\r' ? 1 : 0;
        }
    }
    body.add(piece.substr(at));
}

Failure FastcgiAnswer::judge(const BodyCheck& body) const noexcept {
    const ProtocolStatus status = reader_.protocol_status();
    const bool refusal = status_ == unavailable && status == ProtocolStatus::overloaded;
    if (reader_.app_status() != 0 || (status != ProtocolStatus::request_complete && !refusal)) {
        return Failure::app_status;
    }
    if (status_ == unavailable) {
        return Failure::refused;
    }
    if (status_ != 0 && status_ / 100 != 2) {
        return Failure::http_status;
    }
    const bool head_complete = line_end_bytes_ == head_end.size();
    return head_complete && body.right() ? Failure::none : Failure::body;
}

Answer::State FastcgiAnswer::feed(protocol::Bytes bytes, BodyCheck& body) noexcept {
    for (;;) {
        switch (reader_.next(bytes)) {
            case ResponseEvent::need_more:
                return State::incomplete;
            case ResponseEvent::stdout_bytes: {
                const protocol::Bytes piece = reader_.content();
                check_output({reinterpret_cast<const char*>(piece.data()), piece.size()}, body);
                break;
            }
            case ResponseEvent::stderr_bytes:
                break;
            case ResponseEvent::end_request:
                failure_ = bytes.empty() ? judge(body) : Failure::protocol;
                return State::complete;
            case ResponseEvent::refused:
                failure_ = Failure::protocol;
                return State::complete;
        }
    }
}

}  // namespace cede::bench
