// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "children/unique_fd.h"
#include "pm/poller.h"

namespace cede::pm {

// A connection that we hold for nobody in particular.
struct Held {
    int fd = -1;
    std::uint64_t since_ns = 0;  // CLOCK_MONOTONIC
};

// Connections that nobody serves because nothing is being asked on them. Each waits here, open, until it
// becomes readable or its peer goes. Reads no byte of any.
class ParkingLot {
  public:
    // What becomes of a connection that must go and has nothing to read.
    using Dismiss = std::function<void(children::UniqueFd)>;

    // `poller` must outlive the lot, whose events are of this kind. `capacity`: with more than that, the
    // longest-parked is dismissed.
    ParkingLot(
        Poller& poller, std::size_t capacity, Poller::Kind kind = Poller::Kind::parked,
        Dismiss dismiss = [](const children::UniqueFd&) {})
        : poller_{poller}, capacity_{capacity}, kind_{kind}, dismiss_{std::move(dismiss)} {}

    // Takes effect with those that come.
    void set_capacity(std::size_t capacity) noexcept { capacity_ = capacity; }

    // Returns a connection that had to make room and has something to read, which must be served, not closed;
    // or the new one if it can't be watched.
    [[nodiscard]] children::UniqueFd park(children::UniqueFd connection);
    // One that was parked elsewhere at this time, which is not before that of any other here.
    [[nodiscard]] children::UniqueFd park(children::UniqueFd connection, std::uint64_t since_ns);
    // In order of arrival.
    [[nodiscard]] std::vector<Held> list() const;

    // For an event of the lot's kind. A connection that has become readable leaves the lot; one whose peer
    // has gone is closed; an event for somebody who has left is nothing.
    [[nodiscard]] children::UniqueFd on_event(const Poller::Event& event) noexcept;

    // Dismisses who has been here longest; there is one. Returns it if it has something to read.
    [[nodiscard]] children::UniqueFd dismiss_longest();

    // Dismisses all that were parked before this time (CLOCK_MONOTONIC) and have nothing to read. Those that
    // have come out, one a call, until there is none.
    [[nodiscard]] children::UniqueFd dismiss_silent(std::uint64_t parked_before_ns);

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint64_t closed_for_room() const noexcept { return closed_for_room_; }
    [[nodiscard]] std::uint64_t peers_gone() const noexcept { return peers_gone_; }

  private:
    static constexpr std::uint32_t none = 0xffffffff;
    // A doubly linked list in order of arrival, within the vector; free places are linked by `next`.
    struct Place {
        children::UniqueFd fd;
        std::uint64_t since_ns = 0;
        std::uint32_t previous = none;
        std::uint32_t next = none;
        std::uint16_t age = 0;
    };

    [[nodiscard]] std::uint32_t take_place();
    [[nodiscard]] children::UniqueFd leave(std::uint32_t index) noexcept;

    Poller& poller_;
    std::size_t capacity_;
    Poller::Kind kind_;
    Dismiss dismiss_;
    std::vector<Place> places_;
    std::uint32_t free_ = none;
    std::uint32_t oldest_ = none;
    std::uint32_t newest_ = none;
    std::size_t size_ = 0;
    std::uint64_t closed_for_room_ = 0;
    std::uint64_t peers_gone_ = 0;
};

}  // namespace cede::pm
