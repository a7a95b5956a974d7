// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "protocol/fastcgi_reader.h"
#include "tests/bench/answer.h"

namespace cede::bench {

// The request id of every FastCGI request.
inline constexpr unsigned short request_id = 1;

// FastCGI framing, CGI head, body.
class FastcgiAnswer final : public Answer {
  public:
    void open() noexcept override { begin(); }
    void begin() noexcept override;
    [[nodiscard]] State feed(protocol::Bytes bytes, BodyCheck& body) noexcept override;
    [[nodiscard]] Idle feed_idle(protocol::Bytes) noexcept override { return Idle::broken; }
    [[nodiscard]] bool untouched() const noexcept override { return reader_.untouched(); }
    [[nodiscard]] bool acknowledged() const noexcept override { return false; }
    [[nodiscard]] bool closing() const noexcept override { return false; }

  private:
    void check_output(std::string_view piece, BodyCheck& body) noexcept;
    [[nodiscard]] Failure judge(const BodyCheck& body) const noexcept;

    protocol::fastcgi::ResponseReader reader_{request_id};
    std::size_t head_bytes_ = 0;
    std::size_t line_end_bytes_ = 0;  // how much of the head's closing CR LF CR LF the head ends with
    bool status_line_ = true;         // the head so far agrees with "Status: "
    unsigned status_ = 0;             // as far as it has been read
};

}  // namespace cede::bench
