// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/socket.h>

namespace cede::bench {

// Where the PHP server listens.
class Target {
  public:
    // "127.0.0.1:9000", "[::1]:9000", or a Unix socket: "/path", or "uds://path" as OpenLiteSpeed writes it
    // (the slash in front of an absolute path may be missing). No names are looked up. Throws
    // std::invalid_argument.
    explicit Target(const std::string& address);

    // A non-blocking, close-on-exec socket whose connect has been started, or -1 with errno. A TCP connect
    // may still be in progress: the first send says.
    [[nodiscard]] int connect() const noexcept;

  private:
    sockaddr_storage address_{};
    socklen_t size_ = 0;
};

}  // namespace cede::bench
