// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "protocol/bytes.h"
#include "protocol/fastcgi.h"
#include "protocol/outcome.h"

// Incremental readers of FastCGI 1.0. They take bytes cut anywhere, allocate nothing, call nothing, and
// consume from the front of the span that they are given. docs/fastcgi.md has the grammar.
namespace cede::protocol::fastcgi {

enum class RecordEvent : std::uint8_t {
    need_more,  // the input is used up
    header,     // a header is complete: header() is valid from here to the record's `end`
    content,    // content() is the next piece of the record's content, never empty
    end,        // the record is complete, padding included
};

// Splits a byte stream into records (section 3.3). Framing only: every header decodes, so this reader can not
// fail. Whoever uses it judges version, type and id.
class RecordReader {
  public:
    // Consumes up to the next event. A record without content gives `header` and then `end`; the `end` of a
    // record may need no further input, so ask until `need_more`.
    [[nodiscard]] RecordEvent next(Bytes& input) noexcept;

    [[nodiscard]] const RecordHeader& header() const noexcept { return header_; }
    // Points into the input of the call that gave `content`.
    [[nodiscard]] Bytes content() const noexcept { return content_; }
    // True when not a single byte of a further record has been consumed.
    [[nodiscard]] bool between_records() const noexcept { return in_header_ && header_bytes_ == 0; }

  private:
    bool read_header(Bytes& input) noexcept;

    std::array<std::byte, header_size> raw_header_{};
    std::size_t header_bytes_ = 0;
    std::size_t content_left_ = 0;
    std::size_t padding_left_ = 0;
    bool in_header_ = true;
    RecordHeader header_;
    Bytes content_;
};

struct NameValueLimits {
    std::uint64_t stream_bytes = 1U << 20U;  // of all pairs together, their length fields included
    std::uint64_t pairs = 10'000;
};

// Reads the pairs of PARAMS, GET_VALUES and GET_VALUES_RESULT (section 3.4) from the contents of their
// records. A pair may straddle any number of records. Lengths are judged, in 64 bits, as soon as they are
// known and before a byte of the pair is stored. A length below 128 in the four-byte form is accepted, as the
// specification does.
class NameValueReader {
  public:
    // `storage` must outlive the reader; name and value of one pair together must fit into it.
    explicit NameValueReader(MutableBytes storage, NameValueLimits limits = {}) noexcept
        : storage_(storage), limits_(limits) {}

    // done: name() and value() are the next pair, valid until the next call. need_more: the input is used up.
    // name_value_too_large, stream_too_large, too_many_pairs: refused, for good.
    [[nodiscard]] Outcome next(Bytes& input) noexcept;
    // The stream's end: done between two pairs, truncated inside one, else the way it was refused.
    [[nodiscard]] Outcome finish() const noexcept;

    [[nodiscard]] Bytes name() const noexcept { return Bytes{storage_}.first(name_length_); }
    [[nodiscard]] Bytes value() const noexcept {
        return Bytes{storage_}.subspan(name_length_, value_length_);
    }

  private:
    enum class Part : std::uint8_t { name_length, value_length, body };

    bool read_length(Bytes& input, std::uint32_t& length) noexcept;
    Outcome admit_pair() noexcept;
    Outcome admit_bytes(std::size_t consumed) noexcept;
    Outcome read_lengths(Bytes& input) noexcept;

    MutableBytes storage_;
    NameValueLimits limits_;
    std::uint64_t stream_bytes_ = 0;
    std::uint64_t pairs_ = 0;
    std::array<std::byte, 4> raw_length_{};
    std::size_t raw_length_bytes_ = 0;
    std::uint32_t name_length_ = 0;
    std::uint32_t value_length_ = 0;
    std::size_t stored_ = 0;
    Part part_ = Part::name_length;
    Outcome refused_ = Outcome::need_more;
};

enum class ResponseEvent : std::uint8_t {
    need_more,     // the input is used up
    stdout_bytes,  // content() is the next piece of STDOUT
    stderr_bytes,  // content() is the next piece of STDERR
    end_request,   // the response is complete: app_status(), protocol_status(); the input is not consumed
                   // further
    refused,       // outcome() says why; the connection is out of step and must be closed
};

// The web server's side: one response of one request. Accepts any padding and any value in reserved bytes
// (PHP leaves stale bytes there), and a response without the empty records that end STDOUT and STDERR (PHP
// sends none).
class ResponseReader {
  public:
    explicit ResponseReader(std::uint16_t request_id,
                            std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max()) noexcept
        : max_bytes_(max_bytes), request_id_(request_id) {}

    [[nodiscard]] ResponseEvent next(Bytes& input) noexcept;

    [[nodiscard]] Bytes content() const noexcept { return records_.content(); }
    [[nodiscard]] std::uint32_t app_status() const noexcept { return app_status_; }
    [[nodiscard]] ProtocolStatus protocol_status() const noexcept { return protocol_status_; }
    // need_more, done, bad_version, unexpected_type, unexpected_id, bad_body_size, unknown_status,
    // data_after_end or stream_too_large (STDOUT and STDERR together are more than max_bytes).
    [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }
    // True when nothing of a response has arrived yet, not even a part of a header.
    [[nodiscard]] bool untouched() const noexcept { return !started_ && records_.between_records(); }

  private:
    Outcome judge_header() noexcept;
    ResponseEvent take_content() noexcept;
    ResponseEvent take_end_of_record() noexcept;
    ResponseEvent refuse(Outcome why) noexcept;

    RecordReader records_;
    std::uint64_t bytes_ = 0;
    std::uint64_t max_bytes_;
    std::array<std::byte, end_request_body_size> end_body_{};
    std::size_t end_body_bytes_ = 0;
    std::uint32_t app_status_ = 0;
    std::uint16_t request_id_;
    ProtocolStatus protocol_status_ = ProtocolStatus::request_complete;
    bool started_ = false;
    bool stdout_ended_ = false;
    bool stderr_ended_ = false;
    Outcome outcome_ = Outcome::need_more;
};

}  // namespace cede::protocol::fastcgi
