// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "children/agent/connection.h"
#include "children/scoreboard.h"
#include "protocol/detect.h"

// The agent's whole memory. It lives inside somebody else's PHP: static, no allocation, one thread.
namespace cede::agent {

inline constexpr int max_listeners = 64;

enum class Role : std::uint8_t {
    bystander,  // not started by cede, or nothing to do: every wrapper goes straight to libc
    newborn,    // PHP is starting; asking for its first connection makes it the zygote
    zygote,     // forks children on request, never returns to PHP
    child,      // serves
    stranger,   // a copy that a script forked: has neither listener nor connection any more
};

// How the connection came to this child, until its first request has been judged.
struct Arrival {
    enum class From : std::uint8_t {
        nowhere,  // this child was there before the request
        listener,
        handoff,
    } from = From::nowhere;
    bool tcp = false;
    std::uint64_t since_ns = 0;  // handoff: the request waits since then (CLOCK_MONOTONIC)
    bool as_it_is = false;       // a part of a request, which is not to be given away
};

struct Agent {
    Role role = Role::bystander;
    protocol::Protocol protocol = protocol::Protocol::unknown;  // once it is a zygote
    int listener_fd = 0;  // where PHP takes the listener to be: FastCGI 0, LSAPI a copy of that
    int zygote_channel = -1;
    int scoreboard = -1;
    int nice = 0;      // as the zygote was started; the supervisor may change it for the zygote itself
    int library = -1;  // the agent's own file, by which the loader found it
    int handoff = -1;
    int listeners[max_listeners] = {};
    int listener_count = 0;
    std::uint32_t slot_count = 0;
    int own_slot = -1;  // of a child that was executed by itself; -1: this becomes the zygote
    int channel = -1;   // to the supervisor, child only
    int epoll = -1;     // listeners, handoff and channel, child only
    bool environment_cleaned = false;
    // Bytes of the running request's answer may have gone out. A signal handler reads it.
    volatile bool answer_begun = false;
    std::uint16_t request_id = 0;     // FastCGI: of the latest request that was begun, if it was the only one
    bool orphaned = false;            // the supervisor is gone
    bool exhausted = false;           // out of descriptors
    bool sleep_broken = false;        // a signal ended a sleep: a wake-up may have come with it
    bool prefer_handoff = false;      // which source to try first, so that neither starves the other
    std::uint32_t listen_passes = 0;  // turns for which the listen queue is passed over
    int last_listener = 0;
    std::uint32_t takes_unwatched = 0;  // connections taken since the channel was last looked at
    bool reserved = false;              // for new connections only
    bool over_tcp[max_listeners] = {};  // of each listener
    Arrival arrival;
    bool newly_accepted = false;  // the connection has had no answer, from anybody
    const children::Control* control = nullptr;
    const children::Slot* slots = nullptr;  // all, read-only
    children::Slot* slot = nullptr;         // ours, writable
    Connection connection;
};

extern Agent agent;

// environment.cpp: reads what the supervisor left in the environment. True if this process is meant to be a
// zygote.
bool read_environment() noexcept;
// Removes every trace of the agent from `environ`. `php_started`: also what only PHP's own start needed.
void clean_environment(bool php_started) noexcept;

// zygote_loop.cpp: the newborn asks for its first connection on this descriptor, in the way of this protocol.
// Turns this process into the zygote, or into a child if it was executed to be one. True in a child; false
// when the supervisor has gone or the memory can't be mapped: PHP is to end.
bool grow_up(int listener_fd, protocol::Protocol protocol) noexcept;
// Of what is to be the zygote: tells the supervisor that the agent is loaded.
void say_hello() noexcept;
// Tells it that PHP ends without having asked for a connection: most likely it is the wrong program.
void say_goodbye() noexcept;
// In a process that a script forked: lets go of everything that belongs to the child.
void become_stranger() noexcept;
// Closes it, but the number stays taken: what is written there goes nowhere. Async-signal-safe.
void redirect_to_null(int fd) noexcept;

}  // namespace cede::agent
