// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "children/scoreboard.h"

namespace cede::pm {

// What one child counts, or all of them together.
struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t accepted = 0;          // connections taken from a listening socket
    std::uint64_t taken = 0;             // parked connections taken on
    std::uint64_t parked = 0;            // connections given up by parking
    std::uint64_t closed = 0;            // connections given up by closing
    std::uint64_t refused = 0;           // requests that broke the protocol
    std::uint64_t timed_out = 0;         // of those: their heads did not come in time
    std::uint64_t begun = 0;             // requests whose turn came
    std::uint64_t abandoned = 0;         // requests not run: their peers had gone
    std::uint64_t overdue = 0;           // requests refused: they had waited for too long
    std::uint64_t pings = 0;             // requests answered without PHP
    std::uint64_t bodies_timed_out = 0;  // requests ended: their bodies came too slowly
    std::uint64_t writes_timed_out = 0;  // requests ended: their peers did not read
    std::uint64_t busy_us = 0;           // time spent on requests
    std::array<std::uint64_t, children::wait_buckets> waits{};  // requests, by how long they had waited
    std::uint64_t waited_us = 0;                                // all of them together
    std::uint64_t longest_wait_us = 0;                          // of all, the longest
    bool operator==(const Counts&) const = default;

    // Of how many requests it is known how long they had waited.
    [[nodiscard]] std::uint64_t waits_known() const noexcept;
};

// What has been counted in the life of a pool, by children that are gone, too. The children's own counters
// are hostile (F72): none makes a sum go back, or grow by more than a million for each second of its child's
// life. No wait above a day is believed, and no more time spent waiting than that of as many requests.
// Books only.
class Totals {
  public:
    struct Events {
        std::uint64_t started = 0;  // children
        std::uint64_t ended = 0;
        std::uint64_t killed = 0;  // of those: by a signal
        std::uint64_t reloads = 0;
        std::uint64_t upgrades = 0;
        std::uint64_t give_ups_asked = 0;
        std::uint64_t closed_for_room = 0;  // parked connections
        std::uint64_t peers_gone = 0;       // of parked connections
        std::uint64_t lost_log_lines = 0;
        std::uint64_t longest_queue = 0;      // the most that were seen to wait
        std::uint64_t killed_for_memory = 0;  // most likely
        std::uint64_t not_started = 0;        // refused by the kernel (fork, descriptors)
        // By the supervisor itself; children count theirs.
        std::uint64_t abandoned = 0;          // requests that were not run because their peers had gone
        std::uint64_t overdue = 0;            // requests that were refused because they waited too long
        std::uint64_t pings = 0;              // answered
        std::uint64_t pulled = 0;             // connections taken from a listening socket
        std::uint64_t heads_too_slow = 0;     // connections closed for a request's head that did not come
        std::uint64_t bodies_too_slow = 0;    // or its body
        std::uint64_t silent_closed = 0;      // new connections closed that sent nothing
        std::uint64_t saturated_ms = 0;       // time in which requests had to wait
        std::uint64_t saturations = 0;        // how often they began to
        std::uint64_t saturated_waits = 0;    // how many had to
        std::uint64_t saturated_moments = 0;  // how often for less than an event
        bool operator==(const Events&) const = default;
    };

    // A child is there now, or again, with what its slot says; `age` since it was ordered. What is believed
    // of it. There may be any number of slots.
    const Counts& look(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age);

    // As last looked at.
    [[nodiscard]] Counts seen(std::uint32_t slot) const noexcept {
        return slot < seen_.size() ? seen_[slot] : Counts{};
    }

    // It is gone, and this is the last that its slot said. The slot is free for another.
    void end(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age);

    // Of all children that there have been, as last looked at.
    [[nodiscard]] Counts all() const noexcept;

    Events events;

    // All of it as JSON, and back: for the next program of the same pool, with the same children in their
    // slots. What another version counts is ignored. False, and nothing is changed: it is not what save()
    // made.
    [[nodiscard]] std::string save() const;
    [[nodiscard]] bool load(std::string_view saved);

  private:
    Counts gone_;
    std::vector<Counts> seen_;  // by slot, of who is there now
};

}  // namespace cede::pm
