// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <sys/types.h>

#include "children/unique_fd.h"

namespace cede::pm {

// Who is alive, by slot. Books only: no system call but the closing of channels. References to a child stay
// good when slots are added.
class Pool {
  public:
    using Clock = std::chrono::steady_clock;

    enum class Phase : std::uint8_t {
        vacant,   // no process, no channel
        ordered,  // the zygote was asked for it: a channel, no pid yet
        alive,    // a pid, unique among all slots
    };
    struct Child {
        Phase phase = Phase::vacant;
        bool ready = false;      // has asked for its first connection
        bool overlong = false;   // was told to end for its request's sake
        bool leaving = false;    // was told to end, by itself or with all others
        bool abandoned = false;  // ordered from a zygote that has died since
        bool outdated = false;   // of a configuration that is no longer the running one
        bool condemned = false;  // must not serve: its generation was given up
        bool killed = false;     // by us
        bool successor = false;  // ordered in place of an outdated one
        bool reserved = false;   // for new connections only (--probe-reserve)
        std::uint16_t age = 0;
        std::uint32_t generation = 0;
        unsigned chance = 0;  // 0 to 99: how much earlier than others it is recycled
        pid_t pid = 0;
        children::UniqueFd channel;
        Clock::time_point ordered_at{};
        Clock::time_point ready_at{};
        Clock::time_point leaving_since{};

        // Told to end, with another one in its place already: counts for nothing any more.
        [[nodiscard]] bool superseded() const noexcept { return outdated && leaving; }
    };

    explicit Pool(std::uint32_t size) : children_(size) {}

    // Adds slots, or takes vacant ones away from the end, until there are `size`, or as few as can be.
    void resize(std::uint32_t size);

    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(children_.size()); }
    [[nodiscard]] Child& at(std::uint32_t slot) noexcept { return children_[slot]; }
    [[nodiscard]] const Child& at(std::uint32_t slot) const noexcept { return children_[slot]; }
    [[nodiscard]] std::optional<std::uint32_t> find(pid_t pid) const noexcept;
    [[nodiscard]] std::optional<std::uint32_t> any_vacant() const noexcept;
    // Somebody was ordered and has not asked for a connection yet.
    [[nodiscard]] bool any_starting() const noexcept;
    [[nodiscard]] std::uint32_t count(Phase phase) const noexcept;
    [[nodiscard]] std::uint32_t count_ready() const noexcept;
    // Of the running configuration, and not told to end.
    [[nodiscard]] std::uint32_t count_reserved(std::uint32_t generation) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return count(Phase::vacant) == size(); }

    // Slots with a process whose place nobody else has taken.
    [[nodiscard]] std::uint32_t count_present() const noexcept;

    void order(std::uint32_t slot, std::uint32_t generation, children::UniqueFd channel,
               Clock::time_point now);
    void vacate(std::uint32_t slot) noexcept;

    // "child=3 gen=1 pid=57": the one printed identity of a child.
    [[nodiscard]] std::string identity(std::uint32_t slot) const;

  private:
    std::deque<Child> children_;
};

}  // namespace cede::pm
