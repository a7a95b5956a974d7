// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "children/unique_fd.h"
#include "pm/poller.h"

namespace cede::pm {

// The queue of parked connections that have something to read, from which free children take. Its head is in
// the kernel, in a socket that all children read; the rest waits here, because descriptors in flight are
// limited (unix(7), ETOOMANYREFS) and a queue in the kernel can not be looked at.
class Handoff {
  public:
    // Room in the kernel for about twice as many as there are children. Throws std::system_error.
    Handoff(Poller& poller, std::uint32_t children);

    void push(children::UniqueFd connection);
    // Moves on as many as the kernel takes. Called by push(), and for an event of kind `handoff`.
    void pump() noexcept;
    [[nodiscard]] bool backed_up() const noexcept { return !queue_.empty(); }

    // How many wait for a child, here and in the kernel.
    [[nodiscard]] std::size_t waiting() const noexcept;

    // The end that children read.
    [[nodiscard]] int receiver() const noexcept { return receiver_.get(); }

  private:
    struct Ready {
        children::UniqueFd connection;
        std::uint64_t since_ns = 0;
    };

    children::UniqueFd sender_;
    children::UniqueFd receiver_;
    std::deque<Ready> queue_;
};

}  // namespace cede::pm
