// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "children/unique_fd.h"
#include "pm/control_server.h"

namespace cede::pm {

// One client of the control socket: reads its request, has the action done, answers, closes. The client has
// 10 s for its request, and as long to take the answer.
class ControlSession {
  public:
    ControlSession() = default;
    ControlSession(const ControlSession&) = delete;
    ControlSession& operator=(const ControlSession&) = delete;
    virtual ~ControlSession() = default;

    [[nodiscard]] virtual bool stranger() const noexcept = 0;
    // Its request is not complete, or was refused before it was.
    [[nodiscard]] virtual bool asking() const noexcept = 0;
    virtual void close() noexcept = 0;
};

// `client`: close-on-exec. A stranger's request is refused, whatever it is. `ended` is called once, later,
// from the loop or from close(). Throws boost::system::system_error.
[[nodiscard]] std::shared_ptr<ControlSession> start_session(
    boost::asio::io_context& loop, children::UniqueFd client, bool stranger,
    std::shared_ptr<const ControlServer::Actions> actions, std::function<void(const ControlSession*)> ended);

// Refuses it (503) without having read anything.
void turn_away(children::UniqueFd client, std::string_view why) noexcept;

}  // namespace cede::pm
