// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/answer.h"

#include <algorithm>

namespace cede::bench {

using protocol::fastcgi::ProtocolStatus;
using protocol::fastcgi::ResponseEvent;

namespace {

constexpr std::string_view head_end = "\r\n\r\n";
constexpr std::string_view status_header = "Status: ";

}  // namespace

void Answer::check_body(std::string_view piece) noexcept {
    if (expected_.data() != nullptr && !body_bad_) {
        body_bad_ =
            expected_.substr(std::min(body_bytes_, expected_.size())).substr(0, piece.size()) != piece;
    }
    body_bytes_ += piece.size();
}

void Answer::check_output(std::string_view piece) noexcept {
    std::size_t at = 0;
    while (at < piece.size() && line_end_bytes_ < head_end.size()) {
        const char byte = piece[at++];
        if (status_line_ && head_bytes_ < status_header.size()) {
            status_line_ = byte == status_header[head_bytes_];
        } else if (status_line_ && head_bytes_ == status_header.size()) {
            status_bad_ = byte != '2';
        }
        ++head_bytes_;
        if (byte == head_end[line_end_bytes_]) {
            ++line_end_bytes_;
        } else {
            line_end_bytes_ = byte == '\r' ? 1 : 0;
        }
    }
    check_body(piece.substr(at));
}

Failure Answer::judge() const noexcept {
    if (reader_.app_status() != 0 || reader_.protocol_status() != ProtocolStatus::request_complete) {
        return Failure::app_status;
    }
    if (status_bad_) {
        return Failure::http_status;
    }
    const bool head_complete = line_end_bytes_ == head_end.size();
    const bool body_right = expected_.data() == nullptr || (!body_bad_ && body_bytes_ == expected_.size());
    return head_complete && body_right ? Failure::none : Failure::body;
}

Answer::State Answer::feed(protocol::Bytes bytes) noexcept {
    for (;;) {
        switch (reader_.next(bytes)) {
            case ResponseEvent::need_more:
                return State::incomplete;
            case ResponseEvent::stdout_bytes: {
                const protocol::Bytes piece = reader_.content();
                check_output({reinterpret_cast<const char*>(piece.data()), piece.size()});
                break;
            }
            case ResponseEvent::stderr_bytes:
                break;
            case ResponseEvent::end_request:
                failure_ = bytes.empty() ? judge() : Failure::protocol;
                return State::complete;
            case ResponseEvent::refused:
                failure_ = Failure::protocol;
                return State::complete;
        }
    }
}

}  // namespace cede::bench
