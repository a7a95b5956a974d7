// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/bench/web_server.h"

namespace cede::bench {

// LSAPI as a worker of OpenLiteSpeed 1.9 speaks it (src/extensions: extworker, extconn): at most maxConns
// connections (10 in the stock configuration), the request waits for one in a queue of its worker; connects
// that take 2 s have failed; a request whose connection is lost is sent again, three times in all,
// acknowledged or not. Left out: initTimeout (60 s without an acknowledgement on a new connection).
class OpenLitespeed final : public WebServer {
  public:
    static constexpr std::uint32_t most_attempts = 3;

    // LSAPI has no flag for it: the connection is kept.
    [[nodiscard]] std::vector<std::byte> build_request(const std::string& script,
                                                       bool keep_connection) const override;
    [[nodiscard]] std::unique_ptr<Answer> new_answer() const override;
    [[nodiscard]] Remedy remedy(const Loss& loss) const noexcept override;
    // ABORT_REQUEST
    [[nodiscard]] protocol::Bytes farewell() const noexcept override;
    [[nodiscard]] std::uint32_t max_connections() const noexcept override { return 10; }
    [[nodiscard]] Nanoseconds connect_limit() const noexcept override { return 2 * second; }
    [[nodiscard]] bool waits_for_backlog() const noexcept override { return true; }
};

}  // namespace cede::bench
