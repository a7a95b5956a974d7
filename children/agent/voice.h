// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "children/scoreboard.h"
#include "children/zygote_protocol.h"

// What the child says to the supervisor, and hears from it.
namespace cede::agent {

void count(std::atomic<std::uint64_t>& counter) noexcept;

// Sequentially consistent on purpose: what follows reads Control::waiting, and the supervisor does the
// reverse. One of the two always sees the other.
void publish(children::ChildState state) noexcept;
// For free and idle: with the time.
void publish_rest(children::ChildState state) noexcept;
// From idle, which the supervisor may end first. False if it did.
[[nodiscard]] bool move_from_idle(children::ChildState to) noexcept;

[[nodiscard]] children::Waiting waiting() noexcept;
[[nodiscard]] children::RunMode mode() noexcept;

void ring(children::ChildSays says) noexcept;
// Takes one doorbell from the channel. False when the supervisor is gone.
[[nodiscard]] bool hear_supervisor() noexcept;

}  // namespace cede::agent
