// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "children/unique_fd.h"
#include "pm/config.h"

namespace cede::pm {

// What a service manager is told by datagrams at $NOTIFY_SOCKET (sd_notify(3), whose protocol is fixed), and
// by a line feed on a descriptor when all is ready (s6 and others). Nothing here waits or fails.
class ServiceManager {
  public:
    using Clock = std::chrono::steady_clock;

    // `ready_fd`: of --ready-fd; it becomes ours.
    ServiceManager(const Environment& environment, pid_t self, std::optional<int> ready_fd);

    // New connections are served. Again after each reloading().
    void ready(std::string_view status) noexcept;
    void reloading() noexcept;
    void stopping() noexcept;
    // For people, in one line.
    void status(std::string_view status) noexcept;

    // To be called when due(): says that we are alive, as often as that is wanted (WATCHDOG_USEC,
    // sd_watchdog_enabled(3)).
    void tend(Clock::time_point now) noexcept;
    [[nodiscard]] Clock::time_point due() const noexcept { return due_; }
    [[nodiscard]] bool listens() const noexcept { return !socket_.empty(); }

  private:
    void tell(std::string_view message) noexcept;

    std::string socket_;  // a path, or an abstract name behind '@'
    children::UniqueFd ready_;
    Clock::duration interval_{};
    Clock::time_point due_ = Clock::time_point::max();
};

}  // namespace cede::pm
