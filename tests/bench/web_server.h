// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "protocol/bytes.h"
#include "tests/bench/answer.h"
#include "tests/bench/clock.h"

namespace cede::bench {

enum class Protocol : std::uint8_t { fastcgi, lsapi };

// How a request came to be without a connection before its answer was complete.
struct Loss {
    std::uint32_t earlier = 0;    // losses of the same request before this one
    bool connected = true;        // false: the connect failed
    bool reused = false;          // the connection had served a request before
    bool untouched = true;        // no byte of the answer had arrived
    bool acknowledged = false;    // the other side had said that it runs the script
    bool others_are_idle = true;  // the worker has another connection to send it on
};

enum class Remedy : std::uint8_t {
    give_up,      // the client is told what went wrong
    unavailable,  // as often as the web server tries: the client gets a 503
    reconnect,    // the request is sent again on a new connection in place of the lost one
    another,      // it is sent again as a new request would be, but does not wait behind others
};

// What a web-server worker does that depends on the protocol. One object a protocol, without state.
class WebServer {
  public:
    static constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();

    WebServer() = default;
    WebServer(const WebServer&) = delete;
    WebServer& operator=(const WebServer&) = delete;

    // The bytes of one GET request for a script. Throws std::invalid_argument if the script's name is too
    // long.
    [[nodiscard]] virtual std::vector<std::byte> build_request(const std::string& script,
                                                               bool keep_connection) const = 0;
    [[nodiscard]] virtual std::unique_ptr<Answer> new_answer() const = 0;
    [[nodiscard]] virtual Remedy remedy(const Loss& loss) const noexcept = 0;
    // What is sent, before the close, on a connection whose client has gone; may be nothing.
    [[nodiscard]] virtual protocol::Bytes farewell() const noexcept = 0;
    // How many connections a worker opens unless told otherwise.
    [[nodiscard]] virtual std::uint32_t max_connections() const noexcept = 0;
    // How long a connect may take.
    [[nodiscard]] virtual Nanoseconds connect_limit() const noexcept = 0;
    // Whether a request waits, and is no nearer to its end, when a Unix socket's queue is full (EAGAIN).
    [[nodiscard]] virtual bool waits_for_backlog() const noexcept = 0;

  protected:
    ~WebServer() = default;
};

[[nodiscard]] const WebServer& web_server(Protocol protocol) noexcept;

}  // namespace cede::bench
