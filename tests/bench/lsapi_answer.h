// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "protocol/lsapi_response_reader.h"
#include "tests/bench/answer.h"

namespace cede::bench {

// LSAPI framing, status, body; CONN_CLOSE at any place.
class LsapiAnswer final : public Answer {
  public:
    // Leaves the space for the head as it is: nothing of it is touched before a head comes.
    LsapiAnswer() noexcept {}

    void open() noexcept override;
    void begin() noexcept override;
    [[nodiscard]] State feed(protocol::Bytes bytes, BodyCheck& body) noexcept override;
    [[nodiscard]] Idle feed_idle(protocol::Bytes bytes) noexcept override;
    [[nodiscard]] bool untouched() const noexcept override { return reader_.untouched(); }
    [[nodiscard]] bool acknowledged() const noexcept override { return reader_.acknowledged(); }
    [[nodiscard]] bool closing() const noexcept override { return closing_; }

  private:
    void check_head() noexcept;
    [[nodiscard]] Failure judge(const BodyCheck& body) const noexcept;

    // A head of 32,768 bytes, which is what OpenLiteSpeed accepts (maxDynRespHeaderSize), and the lengths of
    // its lines.
    std::array<std::byte, 36'864> head_;
    protocol::lsapi::ResponseReader reader_{head_};
    bool head_seen_ = false;
    Failure status_failure_ = Failure::none;
    bool closing_ = false;
};

}  // namespace cede::bench
