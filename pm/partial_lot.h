// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "children/unique_fd.h"
#include "pm/parking_lot.h"
#include "pm/places.h"
#include "pm/poller.h"
#include "protocol/detect.h"

namespace cede::pm {

// Connections with a part of a request: who is to send the rest may take its time, and holds no child
// meanwhile. Looks at what has come whenever something comes, and reads no byte of it.
class PartialLot {
  public:
    struct Limits {
        std::chrono::milliseconds head{0};  // from its first byte on; 0: none
        std::chrono::milliseconds body{0};  // without a new byte
        bool run_abandoned = false;         // a head whose peer sends no more is for a child, too
    };
    struct Counts {
        std::uint64_t gone = 0;  // their peers went
        std::uint64_t heads_too_slow = 0;
        std::uint64_t bodies_too_slow = 0;
        std::uint64_t closed_for_room = 0;
    };

    // `poller` must outlive the lot, whose events are of kind `partial`.
    explicit PartialLot(Poller& poller) : poller_{poller} {}

    void speak(protocol::Protocol protocol) noexcept { protocol_ = protocol; }
    void set_limits(const Limits& limits) noexcept { limits_ = limits; }

    // One whose first byte came at this time (CLOCK_MONOTONIC). If it is complete already, an event says so.
    // Closed if it can't be watched.
    void add(children::UniqueFd connection, std::uint64_t since_ns);

    struct Leaving {
        children::UniqueFd connection;  // none: it stays
        bool as_it_is = false;          // it is still a part: a child has to wait for the rest
    };
    // For an event of kind `partial`. One that a child can run, or that has broken the protocol, leaves; one
    // whose peer has gone is closed. What is unread in a Unix socket keeps its peer from sending, by the
    // number of pieces (unix(7), SO_SNDBUF: some 280), so that one in many leaves as it is.
    [[nodiscard]] Leaving on_event(const Poller::Event& event);

    // Closes who has been too slow, and says so in the log. To be called a few times a second.
    void tend(std::uint64_t now_ns);
    // Who has been here longest. There is one.
    void close_oldest();
    // All leave: those that a child can run are returned, the others closed.
    [[nodiscard]] std::vector<children::UniqueFd> dissolve();

    // In no order; the times are those of their first bytes.
    [[nodiscard]] std::vector<Held> list() const { return places_.list(); }
    [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  private:
    struct Place {
        children::UniqueFd fd;
        std::uint64_t since_ns = 0;
        std::uint64_t latest_ns = 0;  // when the latest byte came
        std::size_t seen = 0;         // bytes
        bool has_head = false;
        unsigned pieces = 0;
    };
    [[nodiscard]] children::UniqueFd leave(std::uint32_t index);
    [[nodiscard]] bool is_overdue(const Place& place, std::uint64_t now_ns) const noexcept;
    void forget_gone();

    Poller& poller_;
    protocol::Protocol protocol_ = protocol::Protocol::unknown;
    Limits limits_;
    Places<Place> places_;
    std::deque<Poller::Tag> arrivals_;  // in order; with some that have left
    Counts counts_;
};

}  // namespace cede::pm
