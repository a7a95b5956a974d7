// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "children/unique_fd.h"
#include "pm/parking_lot.h"
#include "pm/places.h"
#include "pm/poller.h"

namespace cede::pm {

// Connections whose last answer has been sent. Closed at once, with something unread, they would be reset,
// and a reset can overtake the answer in the peer's buffer: so each waits until its peer has closed, or for
// `longest_ns`, and what still comes is read and dropped.
class LingerLot {
  public:
    static constexpr std::uint64_t longest_ns = 1'000'000'000;

    // `poller` must outlive the lot, whose events are of kind `lingering`.
    explicit LingerLot(Poller& poller) : poller_{poller} {}

    // Our side is shut down. Closed if it can't be watched.
    void add(children::UniqueFd connection, std::uint64_t since_ns);
    void on_event(const Poller::Event& event);
    // Closes those that are overdue.
    void tend(std::uint64_t now_ns);

    [[nodiscard]] std::vector<Held> list() const { return places_.list(); }
    [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }

  private:
    struct Place {
        children::UniqueFd fd;
        std::uint64_t since_ns = 0;
    };
    void leave(std::uint32_t index);

    Poller& poller_;
    Places<Place> places_;
};

}  // namespace cede::pm
