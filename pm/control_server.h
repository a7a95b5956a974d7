// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "children/unique_fd.h"
#include "pm/answer.h"

namespace cede::pm {

// The commands that come in by the control socket: HTTP/1.1, one request a connection (docs/control.md).
// Knows nothing of processes; never waits for a client. Whoever is neither root nor the user that cede runs
// as (SO_PEERCRED, unix(7)) is refused.
class ControlServer {
  public:
    struct Actions {
        std::function<std::string()> status_json;  // one JSON value
        std::function<void(Answer)> reload;
        std::function<void(bool fast, Answer)> stop;
        // Gets the client's connection (close-on-exec, non-blocking) and owns it: to be ended by
        // answer_raw(), by this program or the next one.
        std::function<void(int client)> upgrade;
        std::function<Outcome()> reopen;
        std::function<void(unsigned count, Answer)> children;
    };

    // `listening`: a Unix stream socket, close-on-exec, non-blocking. `loop` must outlive the server, and run
    // in one thread. Actions are called from the loop only.
    ControlServer(boost::asio::io_context& loop, children::UniqueFd listening, Actions actions);
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;
    // Open connections are closed; answers that come later go nowhere.
    ~ControlServer();

    // The listening socket, still ours: for a program that is executed next.
    [[nodiscard]] int descriptor() const noexcept;

    // Stops listening and gives the socket away. Connections go on.
    [[nodiscard]] children::UniqueFd release_acceptor();

  private:
    class Core;
    std::shared_ptr<Core> core_;
};

// Writes a whole answer to a connection that `upgrade` got, as far as there is room without waiting, and
// closes it.
void answer_raw(int client, const Outcome& outcome) noexcept;

}  // namespace cede::pm
