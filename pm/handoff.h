// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "children/unique_fd.h"
#include "children/zygote_protocol.h"
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
    void push(children::UniqueFd connection, std::uint64_t since_ns, bool as_it_is = false);
    // Those in here, not in the kernel, in order.
    [[nodiscard]] std::vector<Held> list() const;
    // Moves on as many as the kernel takes, or as set_order() allows. Also for each event of kind `handoff`.
    void pump() noexcept;

    struct Ready {
        children::UniqueFd connection;
        std::uint64_t since_ns = 0;
        bool as_it_is = false;  // a part of a request, which nobody but a child can wait for
    };
    // The same ones, the longest-waiting in front; whoever changes it keeps it so.
    [[nodiscard]] std::deque<Ready>& queue() noexcept { return queue_; }

    // From now on, which end is moved on first, and how many are in the kernel at the most.
    void set_order(bool newest_first, std::size_t most_in_kernel) noexcept;

    // From now on it is known since when those in the kernel have waited, so that they can be taken back.
    // Costs a system call now and then.
    void remember(bool whether) noexcept;
    // Takes back who is in the kernel and has waited since before this time, and who stands in front of them.
    // Children take meanwhile: whoever gets a message has the connection. Those that were taken back stand in
    // the queue again. Returns how many they are.
    std::size_t take_back(std::uint64_t before_ns);
    [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }
    [[nodiscard]] bool backed_up() const noexcept { return !queue_.empty(); }

    // How many wait for a child, here and in the kernel.
    [[nodiscard]] std::size_t waiting() const noexcept;

    struct Parked {
        children::UniqueFd connection;
        children::ChildSays how = children::ChildSays::park;  // or park_partial, or see_off
        bool fresh = false;                                   // nothing has ever been asked on it
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
    void prune() noexcept;
    [[nodiscard]] std::size_t in_kernel() const noexcept;

    children::UniqueFd ours_;
    children::UniqueFd theirs_;
    std::deque<Ready> queue_;
    std::deque<std::uint64_t>
        handed_;  // since when those in the kernel have waited, in order; some have left
    std::size_t most_in_kernel_ = std::numeric_limits<std::size_t>::max();
    bool newest_first_ = false;
    bool remember_ = false;
};

}  // namespace cede::pm
