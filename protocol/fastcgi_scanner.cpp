// SPDX-License-Identifier: Apache-2.0
#include "protocol/fastcgi_scanner.h"

namespace cede::protocol::fastcgi {

std::size_t RecordTracker::step(Bytes bytes, bool& begun, bool& ended) noexcept {
    begun = false;
    ended = false;
    if (bytes.empty()) {
        return 0;
    }
    if (left_ > 0) {
        const std::size_t taken = left_ < bytes.size() ? left_ : bytes.size();
        left_ -= static_cast<std::uint32_t>(taken);
        ended = left_ == 0;
        return taken;
    }
    std::size_t taken = 0;
    while (have_ < header_size && taken < bytes.size()) {
        partial_[have_++] = bytes.data()[taken++];
    }
    if (have_ == header_size) {
        current_ = decode_header(Bytes{partial_, header_size});
        have_ = 0;
        left_ = std::uint32_t{current_.content_length} + current_.padding_length;
        begun = true;
        ended = left_ == 0;
    }
    return taken;
}

void RequestScanner::feed(Bytes bytes) noexcept {
    while (!bytes.empty()) {
        bool begun = false;
        bool ended = false;
        bytes = bytes.subspan(step(bytes, begun, ended));
        if (begun && header().type == RecordType::begin_request) {
            ++begun_;
            request_id_ = header().request_id;
            head_complete_ = false;
            request_complete_ = false;
        }
        const bool had_head = head_complete_;
        // PHP takes any record but PARAMS for the end of the parameters; STDIN is the one that occurs.
        head_complete_ = head_complete_ || (begun && header().type == RecordType::stdin_stream);
        if (ended && header().content_length == 0) {
            head_complete_ = head_complete_ || header().type == RecordType::params;
            request_complete_ = request_complete_ || header().type == RecordType::stdin_stream;
        }
        // Before any BEGIN_REQUEST: the rest of a request that another process has answered.
        heads_ += head_complete_ && !had_head && begun_ > 0 ? 1U : 0U;
    }
}

void ResponseScanner::feed(Bytes bytes) noexcept {
    while (!bytes.empty()) {
        bool begun = false;
        bool ended = false;
        bytes = bytes.subspan(step(bytes, begun, ended));
        if (ended && header().type == RecordType::end_request) {
            ++ended_;
        }
    }
}

}  // namespace cede::protocol::fastcgi
