// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/detect.h"

// Layout of the memory that the supervisor shares with its children. Compiled into the agent as well: no
// allocation, no exceptions, nothing from pm/.
//
// One file (memfd) of pages: page 0 is Control, page 1 + n is slot n. Each slot has a page of its own, so
// that a child maps only its own slot writable and a stray write in one child can reach nobody else's. The
// supervisor reads slots as untrusted input. There is no lock in here, and there must never be one: a child
// may be stopped or killed at any instruction.
namespace cede::children {

inline constexpr std::uint32_t scoreboard_magic = 0x63656465;  // "cede"
inline constexpr std::uint32_t scoreboard_version = 7;
inline constexpr std::size_t page_size = 4096;

// docs/states.md has the table of moves. All moves of a slot are made by the child that owns it, except
// idle -> giving_up, which the supervisor makes by compare-and-swap, and those of a slot without a process.
enum class ChildState : std::uint32_t {
    empty,      // no process (supervisor)
    starting,   // forked, has not yet asked for a connection
    free,       // has no connection; takes the next one by itself
    reading,    // has a connection and a part of a request
    busy,       // runs a request
    finishing,  // the answer is complete, the script may still run (fastcgi_finish_request())
    idle,       // connected, between two requests; also a new connection that has sent nothing yet
    giving_up,  // was idle, lets its connection go
    exiting,    // will not take another connection
};
inline constexpr std::uint32_t last_child_state = static_cast<std::uint32_t>(ChildState::exiting);

[[nodiscard]] constexpr const char* name_of(ChildState state) noexcept {
    switch (state) {
        case ChildState::empty:
            return "empty";
        case ChildState::starting:
            return "starting";
        case ChildState::free:
            return "free";
        case ChildState::reading:
            return "reading";
        case ChildState::busy:
            return "busy";
        case ChildState::finishing:
            return "finishing";
        case ChildState::idle:
            return "idle";
        case ChildState::giving_up:
            return "giving-up";
        case ChildState::exiting:
            return "exiting";
    }
    return "unknown";
}

// What the supervisor lets the children know about connections that wait for a child.
enum class Waiting : std::uint32_t {
    nobody,     // nobody is known to wait
    attention,  // somebody waits and a free child is expected to take it: ring when you leave `free`
    pressure,   // more wait than children can take: whoever ends a response gives its connection up at once
};

enum class RunMode : std::uint32_t {
    serve,
    drain,  // take what waits, keep no connection, and exit when nothing waits any more
    stop,   // exit at the next chance, take nothing
};

enum class GiveUpBy : std::uint32_t {
    parking,
    closing,           // but a connection that has had no answer yet is parked
    closing_even_new,  // there is no room to park anything
};

inline constexpr std::uint32_t no_keepalive_limit = 0xffffffff;

// Whether a child counts for the keep-alive limit.
enum class Keeps : std::uint32_t {
    nothing,  // its connection has had no answer yet, or there is none, or no limit
    asking,   // looks whether it may keep its connection
    settled,  // keeps it
};

// Of the histogram of waiting times: the upper bounds of all buckets but the last, which has none.
inline constexpr std::uint32_t wait_bounds_ms[] = {1,   2,   5,    10,   20,   50,    100,
                                                   200, 500, 1000, 2000, 5000, 10000, 30000};
inline constexpr std::size_t wait_buckets = sizeof wait_bounds_ms / sizeof wait_bounds_ms[0] + 1;

// Written by the supervisor only; children map it read-only.
struct alignas(page_size) Control {
    std::uint32_t magic = scoreboard_magic;
    std::uint32_t version = scoreboard_version;
    std::uint32_t slot_count = 0;  // how many the file has room for
    alignas(64) std::atomic<Waiting> waiting{Waiting::nobody};
    std::atomic<RunMode> mode{RunMode::serve};
    std::atomic<GiveUpBy> give_up_by{GiveUpBy::parking};
    std::atomic<std::uint32_t> keepalive_limit{no_keepalive_limit};  // children that may keep a connection
    std::atomic<std::uint32_t> slots_used{0};                        // no process has a slot behind these
    // Not 0: the listen queues are somebody else's, and what waits there when we leave is for the next one.
    std::atomic<std::uint32_t> listeners_inherited{0};
    // Which one the children speak, when it is not to be told from how they ask for connections.
    std::atomic<protocol::Protocol> protocol{protocol::Protocol::unknown};
    // For slow peers; 0: no limit.
    std::atomic<std::uint32_t> first_byte_timeout_ms{0};  // of a new connection
    std::atomic<std::uint32_t> read_timeout_ms{0};        // for the head of a request
    std::atomic<std::uint32_t> body_timeout_ms{0};        // between two pieces of a body
    std::atomic<std::uint32_t> body_rate{0};              // bytes a second, on average, for a whole body
    std::atomic<std::uint32_t> write_timeout_ms{0};       // between two pieces of an answer
    std::atomic<std::uint32_t> linger_timeout_ms{0};      // for the peer to close, behind the answer
    // A request that has waited longer is refused; 0: no limit.
    std::atomic<std::uint32_t> max_wait_ms{0};
    // How long who is first in the listen queues has waited, by the supervisor's samples: for sockets that
    // can't say so themselves.
    std::atomic<std::uint32_t> listen_wait_ms{0};
    std::atomic<std::uint32_t> run_abandoned{0};    // not 0: requests are run although their peer has gone
    std::atomic<std::uint32_t> pass_queue_time{0};  // not 0: scripts get CEDE_QUEUE_USEC
    char title[64] = {};  // shown by the zygote, which reads it when it starts; with a NUL unless it is full
};

struct alignas(page_size) Slot {
    std::atomic<ChildState> state{ChildState::empty};
    std::atomic<std::uint32_t> pid{0};       // written by the process between zygote and child
    std::atomic<std::uint64_t> since_ns{0};  // CLOCK_MONOTONIC of the last move to free or idle
    std::atomic<std::uint64_t> requests{0};  // answered
    std::atomic<std::uint64_t> accepted{0};  // connections taken from a listener
    std::atomic<std::uint64_t> taken{0};     // parked connections taken from the handoff queue
    std::atomic<std::uint64_t> parked{0};    // connections given up by parking
    std::atomic<std::uint64_t> closed{0};    // connections given up by closing
    std::atomic<std::uint64_t> refused{0};   // requests that broke the protocol and did not reach PHP
    // By the supervisor. A child that changes them harms itself alone.
    std::atomic<std::uint64_t> quota{0};   // requests that it may begin; 0: no limit
    std::atomic<std::uint32_t> retire{0};  // not 0: it is to end, between two requests
    // By the supervisor too, before the child is there; with a NUL.
    std::atomic<std::uint32_t> reserved{0};  // not 0: it serves new connections only, and keeps none
    char ping_path[128] = {};                // answered without PHP; empty: none
    char queue_start[64] = {};  // the variable in which the web server says when it got the request
    // By the child again.
    std::atomic<std::uint64_t> timed_out{0};  // of the refused: those whose head did not come in time
    // Requests whose head was complete when it was their turn. Of those whose client left, some are never
    // answered.
    std::atomic<std::uint64_t> begun{0};
    std::atomic<std::uint64_t> abandoned{0};  // not run because their peers had gone
    std::atomic<std::uint64_t> overdue{0};    // refused because they had waited for longer than max_wait_ms
    std::atomic<std::uint64_t> pings{0};      // answered by the child itself
    std::atomic<std::uint64_t> bodies_timed_out{0};  // ended: the body came too slowly
    std::atomic<std::uint64_t> writes_timed_out{0};  // ended: the peer did not read its answer
    std::atomic<std::uint64_t> busy_us{0};  // from a request's turn to the end of its answer, all together
    // How long requests that were begun had waited for a child.
    std::atomic<std::uint64_t> waits[wait_buckets] = {};
    std::atomic<std::uint64_t> waited_us{0};  // all together
    std::atomic<std::uint64_t> longest_wait_us{0};
    std::atomic<Keeps> keeps{Keeps::nothing};
};

static_assert(sizeof(Control) == page_size && sizeof(Slot) == page_size);
static_assert(std::atomic<ChildState>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

[[nodiscard]] constexpr std::size_t scoreboard_size(std::size_t slots) noexcept {
    return page_size * (1 + slots);
}

}  // namespace cede::children
