// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <optional>
#include <string>

#include "pm/control_request.h"
#include "pm/error.h"

namespace cede::pm {

// One request to the control socket of a pool. Waits; for a program of one thread that does nothing else.
class ControlClient {
  public:
    struct Reply {
        bool ended = false;   // the connection ended before there was an answer
        unsigned status = 0;  // of HTTP
        std::string body;
    };
    enum class Refusal { nobody, forbidden, other };
    struct Unreachable {
        Refusal why = Refusal::other;
        std::string message;
    };

    // A server that does not accept is waited for, some seconds.
    [[nodiscard]] static std::expected<ControlClient, Unreachable> connect(const std::string& path);

    ControlClient(ControlClient&&) noexcept;
    ControlClient& operator=(ControlClient&&) noexcept;
    ~ControlClient();

    [[nodiscard]] const std::string& path() const noexcept;

    // Once. None for `timeout`: for as long as it takes.
    [[nodiscard]] std::expected<Reply, Error> ask(const HttpRequest& request,
                                                  std::optional<std::chrono::milliseconds> timeout);

    // Until the server's process has ended. False: not within the time.
    [[nodiscard]] bool wait_for_end(std::optional<std::chrono::milliseconds> timeout) const noexcept;

  private:
    struct Wire;
    explicit ControlClient(std::unique_ptr<Wire> wire) noexcept;
    std::unique_ptr<Wire> wire_;
};

}  // namespace cede::pm
