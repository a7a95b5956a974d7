// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/lsapi.h"
#include "protocol/lsapi_content_length.h"

// Follow an LSAPI connection from the outside: bytes that somebody else reads or writes pass by, in pieces
// cut anywhere, and the scanners tell where packets, requests and answers begin and end. They keep a few
// dozen bytes, never a packet, and judge only what would put them out of step: what PHP makes of a bad
// request is PHP's business. The questions are those of the FastCGI scanners.
namespace cede::protocol::lsapi {

// Splits a byte stream into packets. Both directions share it.
class PacketTracker {
  public:
    // Nothing of a packet is pending: the next byte begins a header.
    [[nodiscard]] bool at_boundary() const noexcept { return have_ == 0 && left_ == 0 && !lost_; }
    // A header came that can not be followed. What comes behind it means nothing, for good; lsphp closes.
    [[nodiscard]] bool out_of_step() const noexcept { return lost_; }

  protected:
    // Consumes one header or one run of what follows it. Returns the bytes consumed (> 0 unless empty).
    // `begun` is set when this step completed a header, `ended` when it completed a packet.
    std::size_t step(Bytes bytes, bool& begun, bool& ended) noexcept;
    [[nodiscard]] const PacketHeader& header() const noexcept { return current_; }
    // Bytes of the current packet that have passed, its header included; 0 while its header is incomplete.
    [[nodiscard]] std::size_t passed() const noexcept { return left_ == 0 ? 0 : length_ - left_; }
    void lose() noexcept { lost_ = true; }

  private:
    std::byte partial_[packet_header_size] = {};
    std::uint8_t have_ = 0;  // bytes of partial_ in use
    bool lost_ = false;
    std::uint32_t length_ = 0;
    std::uint32_t left_ = 0;  // of length_, still to come
    PacketHeader current_;
};

// Finds the length of the body in a BEGIN_REQUEST packet that passes by. Header index and HTTP header block
// are the last parts of the packet, so that their place follows from its length and the numbers in its fixed
// header; the index says where the value of Content-Length stands. Nothing else is kept.
class BodyLengthFinder {
  public:
    // `piece` stands at offset `at` of the packet with this header; pieces come in order.
    void pass(const PacketHeader& header, Bytes piece, std::size_t at) noexcept;
    // Valid once the packet has passed completely. 0: no body.
    [[nodiscard]] std::uint64_t result(const PacketHeader& header) const noexcept;

  private:
    void pass_value(const PacketHeader& header, Bytes piece, std::size_t at) noexcept;

    static constexpr std::size_t fields_at = http_header_length_at;
    std::byte fields_[env_count_at - fields_at] = {};
    std::byte value_length_[2] = {};
    std::byte value_offset_[4] = {};
    ContentLength content_length_;
};

// Web server to PHP.
class RequestScanner : public PacketTracker {
  public:
    void feed(Bytes bytes) noexcept;
    // As feed(), but stops behind the last byte of a request (its body included) or of another packet.
    // Returns the bytes consumed. lsphp throws away what it has read beyond the end of a request.
    std::size_t feed_to_boundary(Bytes bytes) noexcept;

    // Nothing of a packet or a body is pending.
    [[nodiscard]] bool at_boundary() const noexcept {
        return PacketTracker::at_boundary() && body_left_ == 0;
    }
    // BEGIN_REQUEST packets seen.
    [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
    // The latest request's packet is complete, so that a script may run.
    [[nodiscard]] bool head_complete() const noexcept { return head_complete_; }
    // The latest request is complete, to the end of its body: the peer has nothing more to send for it.
    [[nodiscard]] bool request_complete() const noexcept { return head_complete_ && at_boundary(); }

  private:
    std::size_t advance(Bytes bytes) noexcept;
    void begin_packet() noexcept;

    std::uint64_t begun_ = 0;
    std::uint64_t body_left_ = 0;
    BodyLengthFinder body_length_;
    bool head_complete_ = false;
};

// PHP to web server.
class ResponseScanner : public PacketTracker {
  public:
    void feed(Bytes bytes) noexcept;
    // RESP_END packets that have passed completely.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
    // A CONN_CLOSE packet has passed completely: PHP has given the connection up.
    [[nodiscard]] bool close_announced() const noexcept { return close_announced_; }

  private:
    std::uint64_t ended_ = 0;
    bool close_announced_ = false;
};

}  // namespace cede::protocol::lsapi
