// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/fastcgi_reader.h"
#include "tests/bench/request.h"

namespace cede::bench {

// Why a request was not served.
enum class Failure : std::uint8_t {
    none,
    connect,      // the connection was refused, or the socket's queue was full
    closed,       // the other side closed before the answer was complete
    reset,        // as `closed`, by a reset or another socket error
    timeout,      // no complete answer within the patience
    protocol,     // the answer breaks FastCGI, or bytes came without a request
    app_status,   // END_REQUEST with another appStatus or protocolStatus than 0
    http_status,  // a Status: header that is not 2xx
    body,         // another body than the expected one
};
inline constexpr std::size_t failure_count = 9;
inline constexpr std::array<std::string_view, failure_count> failure_names{
    "none", "connect", "closed", "reset", "timeout", "protocol", "app_status", "http_status", "body"};

// Reads and checks one answer: FastCGI framing, CGI head, body. Stores nothing of it.
class Answer {
  public:
    enum class State : std::uint8_t { incomplete, complete };

    // `expected` must outlive the answer; with a null data pointer any body is right.
    explicit Answer(std::string_view expected = {}) noexcept : expected_(expected) {}

    [[nodiscard]] State feed(protocol::Bytes bytes) noexcept;
    // Valid when complete; `protocol` completes an answer at once.
    [[nodiscard]] Failure failure() const noexcept { return failure_; }
    // True when no byte of the answer has arrived.
    [[nodiscard]] bool untouched() const noexcept { return reader_.untouched(); }

  private:
    void check_output(std::string_view piece) noexcept;
    void check_body(std::string_view piece) noexcept;
    [[nodiscard]] Failure judge() const noexcept;

    protocol::fastcgi::ResponseReader reader_{request_id};
    std::string_view expected_;
    std::size_t head_bytes_ = 0;
    std::size_t line_end_bytes_ = 0;  // how much of the head's closing CR LF CR LF the head ends with
    std::size_t body_bytes_ = 0;
    bool status_line_ = true;  // the head so far agrees with "Status: "
    bool status_bad_ = false;
    bool body_bad_ = false;
    Failure failure_ = Failure::none;
};

}  // namespace cede::bench
