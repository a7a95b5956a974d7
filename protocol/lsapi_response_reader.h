// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/lsapi.h"
#include "protocol/outcome.h"

// Incremental reader of LSAPI answers. It takes bytes cut anywhere, allocates nothing, calls nothing, and
// consumes from the front of the span that it is given. docs/lsapi.md has the grammar and the limits.
namespace cede::protocol::lsapi {

enum class PacketEvent : std::uint8_t {
    need_more,  // the input is used up
    header,     // a header is complete: header() is valid from here to the packet's `end`
    content,    // content() is the next piece of what follows the header, never empty
    end,        // the packet is complete
};

// Splits the stream from PHP into packets. Framing only: every header decodes, so this reader can not fail.
// Whoever uses it judges magic, type and length at `header`, and stops there unless the length is at least
// packet_header_size.
class PacketReader {
  public:
    // Consumes up to the next event. The `end` of a packet may need no further input, so ask until
    // `need_more`.
    [[nodiscard]] PacketEvent next(Bytes& input) noexcept;

    [[nodiscard]] const PacketHeader& header() const noexcept { return header_; }
    // Points into the input of the call that gave `content`.
    [[nodiscard]] Bytes content() const noexcept { return content_; }
    // True when not a single byte of a further packet has been consumed.
    [[nodiscard]] bool between_packets() const noexcept { return in_header_ && header_bytes_ == 0; }

  private:
    std::array<std::byte, packet_header_size> raw_header_{};
    std::size_t header_bytes_ = 0;
    std::size_t content_left_ = 0;
    bool in_header_ = true;
    PacketHeader header_;
    Bytes content_;
};

// Walks over the lines of a response header that ResponseReader has accepted.
class LineCursor {
  public:
    LineCursor() = default;
    LineCursor(Bytes lengths, Bytes text, std::endian order) noexcept
        : lengths_(lengths), text_(text), order_(order) {}
    // The next line, "Name: value" without its NUL; nothing behind the last.
    [[nodiscard]] std::optional<std::string_view> next() noexcept;

  private:
    Bytes lengths_;
    Bytes text_;
    std::endian order_ = std::endian::native;
};

enum class ResponseEvent : std::uint8_t {
    need_more,     // the input is used up
    received,      // PHP has acknowledged the request: REQ_RECEIVED, or with pid()
    head,          // a RESP_HEADER packet is complete: status(), lines()
    body_bytes,    // content() is the next piece of the body
    stderr_bytes,  // content() is the next piece for the log
    conn_close,    // PHP gives the connection up, once this answer is complete if it is in one
    end,           // the answer is complete; the input is not consumed further
    refused,       // outcome() says why; the connection is out of step and must be closed
};

// The web server's side: one answer. On an idle connection a fresh reader sees a CONN_CLOSE that comes
// between two answers. Judges as OpenLiteSpeed does, and beyond it a header's lines: as many as announced,
// each of its length with the NUL, all together the packet.
class ResponseReader {
  public:
    // A RESP_HEADER packet, its first 8 bytes left out, must fit into `storage`, which must outlive the
    // reader.
    explicit ResponseReader(MutableBytes storage,
                            std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max()) noexcept
        : storage_(storage), max_bytes_(max_bytes) {}

    [[nodiscard]] ResponseEvent next(Bytes& input) noexcept;

    // Valid until the next call of next().
    [[nodiscard]] Bytes content() const noexcept { return content_; }
    // As PHP sent it: 0 and 200 mean that a Status line, or nothing, decides.
    [[nodiscard]] std::int32_t status() const noexcept { return status_; }
    // Valid until the next `head`.
    [[nodiscard]] LineCursor lines() const noexcept { return lines_; }
    // Of the process that acknowledged with its pid, else 0.
    [[nodiscard]] std::int32_t pid() const noexcept { return pid_; }
    [[nodiscard]] bool acknowledged() const noexcept { return acknowledged_; }
    // need_more, done, bad_magic, unexpected_type, bad_packet_size, head_after_body, head_too_large,
    // too_many_lines, bad_entry, size_mismatch, or stream_too_large (body and log together are more than
    // max_bytes).
    [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }
    // True when nothing of an answer has arrived yet, not even a part of a header. CONN_CLOSE is no answer.
    [[nodiscard]] bool untouched() const noexcept { return !started_ && packets_.between_packets(); }

  private:
    [[nodiscard]] std::size_t content_size() const noexcept;
    [[nodiscard]] Outcome judge_size() const noexcept;
    Outcome judge_header() noexcept;
    Outcome judge_head() noexcept;
    [[nodiscard]] bool may_be_pid() const noexcept;
    bool admit(std::size_t size) noexcept;
    ResponseEvent take_content() noexcept;
    ResponseEvent take_end_of_packet() noexcept;
    ResponseEvent take_short_stderr() noexcept;
    ResponseEvent refuse(Outcome why) noexcept;

    PacketReader packets_;
    MutableBytes storage_;
    std::size_t stored_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint64_t max_bytes_;
    Bytes content_;
    LineCursor lines_;
    std::array<std::byte, pid_content_size> short_stderr_{};
    std::int32_t status_ = 0;
    std::int32_t pid_ = 0;
    bool started_ = false;
    bool body_begun_ = false;
    bool acknowledged_ = false;
    Outcome outcome_ = Outcome::need_more;
};

}  // namespace cede::protocol::lsapi
