// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "children/scoreboard.h"
#include "children/zygote_protocol.h"

// What the child says to the supervisor, and hears from it.
namespace cede::agent {

void count(std::atomic<std::uint64_t>& counter, std::uint64_t more = 1) noexcept;

// Sequentially consistent on purpose: what follows reads Control::waiting, and the supervisor does the
// reverse. One of the two always sees the other.
void publish(children::ChildState state) noexcept;
// For free and idle: with the time.
void publish_rest(children::ChildState state) noexcept;
// From idle, which the supervisor may end first. False if it did.
[[nodiscard]] bool move_from_idle(children::ChildState to) noexcept;

[[nodiscard]] children::Waiting waiting() noexcept;
[[nodiscard]] children::RunMode mode() noexcept;

// The books of a request that begins, and of one whose answer is complete.
void record_wait() noexcept;
void record_end() noexcept;

void ring(children::ChildSays says) noexcept;
// Counts a request that PHP must not see. The supervisor is told at the most once a second.
void report_refusal(protocol::Outcome why, protocol::Protocol spoken) noexcept;
// The same of a request that PHP runs, which has a count of its own.
void report_slow_peer(protocol::Outcome why) noexcept;
// Takes one doorbell from the channel. False when the supervisor is gone.
[[nodiscard]] bool hear_supervisor() noexcept;

}  // namespace cede::agent
