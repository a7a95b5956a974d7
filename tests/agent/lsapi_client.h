// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "children/unique_fd.h"
#include "protocol/lsapi_writer.h"

namespace cede::tests::lsapi {

using children::UniqueFd;

// A request for one of the host program's commands (tests/agent/commands.c), with its body.
struct Command {
    std::string_view name;
    std::string_view argument{};
    std::string_view body{};
    std::string_view filling{};     // one more environment variable, to make the head longer
    std::int64_t body_length = -1;  // to announce another one than the body has
    bool length_in_header = false;  // only Content-Length tells it
    protocol::lsapi::RequestLayout layout{};
};
std::string bytes_of(const Command& command);
std::string command(std::string_view name, std::string_view argument = {}, std::string_view body = {});

// The sizes of all reads in what the command "trace" answers.
std::vector<std::size_t> reads(const std::string& trace);

struct Answer {
    std::string text;            // what RESP_STREAM packets held
    std::string log;             // what STDERR_STREAM packets held
    std::int32_t status = 0;     // of RESP_HEADER
    bool acknowledged = false;   // REQ_RECEIVED has come
    bool complete = false;       // RESP_END has come
    bool told_to_close = false;  // CONN_CLOSE has come before that
    bool closed = false;         // the stream ended first
};

// A web server's end of a connection to the C host program. Every wait is bounded.
class Client {
  public:
    explicit Client(UniqueFd connection) : connection_{std::move(connection)} {}

    [[nodiscard]] int fd() const { return connection_.get(); }
    // All of it; waits for room.
    bool send(std::string_view bytes);
    Answer read_answer();
    // Sends a request and reads its answer; the text, or in parentheses what happened instead.
    std::string ask(std::string_view request);
    // The next that comes is CONN_CLOSE.
    bool told_to_close();
    // The stream ends and nothing more comes on it. An error, as after a reset, is no end.
    bool ends();
    // Whether what is unread has this in it, without waiting.
    bool holds(std::string_view text);
    // Nothing unread has come, and the stream has not ended.
    [[nodiscard]] bool silent();
    // As the peer sees a crash or an exit: the end of both directions.
    void close() { connection_.reset(); }
    // The same for one who waits for room in send() at this moment.
    void shut_down();

  private:
    // Waits for more. 0 at the end of the stream, -1 at an error or when nothing comes.
    std::ptrdiff_t receive(int timeout_ms);

    UniqueFd connection_;
    std::string unread_;
};

}  // namespace cede::tests::lsapi
