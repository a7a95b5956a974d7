// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/lsapi.h"

namespace cede::protocol::lsapi {

// Follows the answers of an LSAPI connection from the outside: bytes that lsphp writes pass by, in pieces cut
// anywhere, and the scanner tells where packets and answers end. It keeps a header and judges only what would
// put it out of step. Requests need no scanner: RequestReader has them whole, in front of lsphp.
class ResponseScanner {
  public:
    void feed(Bytes bytes) noexcept;
    // RESP_END packets that have passed completely.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
    // A CONN_CLOSE packet has passed completely: PHP has given the connection up.
    [[nodiscard]] bool close_announced() const noexcept { return close_announced_; }
    // Nothing of a packet is pending: the next byte begins a header.
    [[nodiscard]] bool at_boundary() const noexcept { return have_ == 0 && left_ == 0 && !lost_; }
    // A header came that can not be followed. What comes behind it means nothing, for good.
    [[nodiscard]] bool out_of_step() const noexcept { return lost_; }

  private:
    // Consumes one header or one run of what follows it. Returns the bytes consumed (> 0 unless empty).
    std::size_t step(Bytes bytes) noexcept;
    void packet_ended() noexcept;

    std::byte partial_[packet_header_size] = {};
    std::uint8_t have_ = 0;   // bytes of partial_ in use
    std::uint32_t left_ = 0;  // of the packet, still to come
    PacketHeader current_;
    std::uint64_t ended_ = 0;
    bool close_announced_ = false;
    bool lost_ = false;
};

}  // namespace cede::protocol::lsapi
