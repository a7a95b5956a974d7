// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "children/unique_fd.h"
#include "pm/parking_lot.h"
#include "pm/poller.h"

namespace cede::pm {

// The queue of parked connections that have something to read, from which free children take; and the way
// back, by which children park. Its head is in the kernel, in a socket that all children share; the rest
// waits here, because descriptors in flight are limited (unix(7), ETOOMANYREFS) and a queue in the kernel can
// not be looked at.
class Handoff {
  public:
    struct Ends {
        children::UniqueFd ours;
        children::UniqueFd theirs;
    };
    // Room in the kernel for about twice as many as there are children. `ends`: of one that goes on here;
    // empty: a new one. Throws std::system_error.
    Handoff(Poller& poller, std::uint32_t children, Ends ends = {});

    // Queues a connection; pump() moves it on.
    void push(children::UniqueFd connection);
    // One that has waited since this time (CLOCK_MONOTONIC).
    void push(children::UniqueFd connection, std::uint64_t since_ns);
    // Those in here, not in the kernel, in order.
    [[nodiscard]] std::vector<Held> list() const;
    // Moves on as many as the kernel takes. Also for each event of kind `handoff`.
    void pump() noexcept;
    [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }
    [[nodiscard]] bool backed_up() const noexcept { return !queue_.empty(); }

    // How many wait for a child, here and in the kernel.
    [[nodiscard]] std::size_t waiting() const noexcept;

    struct Parked {
        children::UniqueFd connection;
        bool seen_off = false;  // its peer has been told to close it
    };
    // Appends all connections that children have given up. Returns the size of `into`.
    std::size_t receive_parked(std::vector<Parked>& into);

    // Sleeps until fewer than half as many connections as there are children wait in the kernel, `longest` at
    // the most. False if that was so already: then there was no rest.
    [[nodiscard]] bool rest_until_low(std::chrono::milliseconds longest) noexcept;

    // The end that children read, and park by.
    [[nodiscard]] int receiver() const noexcept { return theirs_.get(); }
    [[nodiscard]] int sender() const noexcept { return ours_.get(); }

  private:
    struct Ready {
        children::UniqueFd connection;
        std::uint64_t since_ns = 0;
    };

    children::UniqueFd ours_;
    children::UniqueFd theirs_;
    std::deque<Ready> queue_;
};

}  // namespace cede::pm
