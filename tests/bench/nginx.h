// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/bench/web_server.h"

namespace cede::bench {

// FastCGI as a worker of nginx 1.22 with an upstream keepalive pool speaks it: its usual parameters, one
// PARAMS record padded to a multiple of 8, all in one piece. A GET is sent again, once, when a reused
// connection is closed before the first byte of the answer.
class Nginx final : public WebServer {
  public:
    [[nodiscard]] std::vector<std::byte> build_request(const std::string& script,
                                                       bool keep_connection) const override;
    [[nodiscard]] std::unique_ptr<Answer> new_answer() const override;
    [[nodiscard]] Remedy remedy(const Loss& loss) const noexcept override;
    [[nodiscard]] protocol::Bytes farewell() const noexcept override { return {}; }
    [[nodiscard]] std::uint32_t max_connections() const noexcept override { return unlimited; }
    [[nodiscard]] Nanoseconds connect_limit() const noexcept override { return 60 * second; }
    [[nodiscard]] bool waits_for_backlog() const noexcept override { return false; }
};

}  // namespace cede::bench
