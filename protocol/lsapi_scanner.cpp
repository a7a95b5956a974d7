// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_scanner.h"

#include <algorithm>

namespace cede::protocol::lsapi {

void ResponseScanner::packet_ended() noexcept {
    if (current_.type == PacketType::resp_end) {
        ++ended_;
    }
    close_announced_ = close_announced_ || current_.type == PacketType::conn_close;
}

std::size_t ResponseScanner::step(Bytes bytes) noexcept {
    if (lost_) {
        return bytes.size();
    }
    if (left_ > 0) {
        const std::size_t taken = std::min<std::size_t>(left_, bytes.size());
        left_ -= static_cast<std::uint32_t>(taken);
        if (left_ == 0 && taken > 0) {
            packet_ended();
        }
        return taken;
    }
    std::size_t taken = 0;
    while (have_ < packet_header_size && taken < bytes.size()) {
        partial_[have_++] = bytes.data()[taken++];
    }
    if (have_ < packet_header_size) {
        return taken;
    }
    current_ = decode_header(Bytes{partial_, packet_header_size});
    have_ = 0;
    if (!current_.magic || current_.length < static_cast<std::int32_t>(packet_header_size)) {
        lost_ = true;
        return bytes.size();
    }
    left_ = static_cast<std::uint32_t>(current_.length) - static_cast<std::uint32_t>(packet_header_size);
    if (left_ == 0) {
        packet_ended();
    }
    return taken;
}

void ResponseScanner::feed(Bytes bytes) noexcept {
    while (!bytes.empty()) {
        bytes = bytes.subspan(step(bytes));
    }
}

}  // namespace cede::protocol::lsapi
