// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/fastcgi.h"

// Follow a FastCGI connection from the outside: bytes that somebody else reads or writes pass by, in pieces
// cut anywhere, and the scanners tell where records and requests begin and end. They copy nothing but a
// header, keep no content and judge nothing: what PHP makes of a bad record is PHP's business.
namespace cede::protocol::fastcgi {

// Splits a byte stream into records. Feed() calls the derived handlers, so that both directions share it.
class RecordTracker {
  public:
    // Nothing of a record is pending: the next byte begins a header.
    [[nodiscard]] bool at_boundary() const noexcept { return have_ == 0 && left_ == 0; }

  protected:
    // Consumes one header or one run of content and padding. Returns the bytes consumed (> 0 unless empty).
    // `begun` is set when this step completed a header, `ended` when it completed a record.
    std::size_t step(Bytes bytes, bool& begun, bool& ended) noexcept;
    [[nodiscard]] const RecordHeader& header() const noexcept { return current_; }

  private:
    std::byte partial_[header_size] = {};
    std::uint8_t have_ = 0;   // bytes of partial_ in use
    std::uint32_t left_ = 0;  // content and padding still to come
    RecordHeader current_;
};

// Web server to PHP.
class RequestScanner : public RecordTracker {
  public:
    void feed(Bytes bytes) noexcept;
    // BEGIN_REQUEST records seen.
    [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
    // How many of them have had a complete head.
    [[nodiscard]] std::uint64_t heads() const noexcept { return heads_; }
    // Of the latest BEGIN_REQUEST.
    [[nodiscard]] std::uint16_t request_id() const noexcept { return request_id_; }
    // The latest request's head is complete (empty PARAMS record seen), so that a script may run.
    [[nodiscard]] bool head_complete() const noexcept { return head_complete_; }
    // A part of a head has come, and not all of it.
    [[nodiscard]] bool in_head() const noexcept {
        const bool between = begun_ == 0 || request_complete_;
        return between ? !at_boundary() : !head_complete_;
    }
    // The latest request is complete, to its empty STDIN record: the peer has nothing more to send for it.
    [[nodiscard]] bool request_complete() const noexcept { return request_complete_ && at_boundary(); }

  private:
    std::uint64_t begun_ = 0;
    std::uint64_t heads_ = 0;
    std::uint16_t request_id_ = 0;
    bool head_complete_ = false;
    bool request_complete_ = false;
};

// PHP to web server.
class ResponseScanner : public RecordTracker {
  public:
    void feed(Bytes bytes) noexcept;
    // END_REQUEST records that have passed completely.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }

  private:
    std::uint64_t ended_ = 0;
};

}  // namespace cede::protocol::fastcgi
