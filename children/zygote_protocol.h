// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "protocol/detect.h"
#include "protocol/outcome.h"

// Fixed-size messages over SOCK_SEQPACKET pairs, one message a packet: between supervisor and zygote, between
// supervisor and each child, and from the supervisor to whichever child is free (handoff). Compiled into the
// agent as well. Both ends come from the same build; the version catches a mixed installation.
namespace cede::children {

inline constexpr std::uint32_t protocol_version = 4;

// The agent's only way to learn its descriptors: CEDE_AGENT="4 <zygote channel> <scoreboard> <handoff>
// <first listener> <number of listeners> <slots>", all decimal; behind the last listener comes the agent's
// own file. One number more, a slot, makes the process its child instead of a zygote, and the channel that
// child's (ChildReport, Doorbell). Removed from the environment before PHP can see it.
inline constexpr char agent_variable[] = "CEDE_AGENT";
// What LD_PRELOAD held before the agent was put in front of it; put back by the agent. Absent if unset.
inline constexpr char saved_preload_variable[] = "CEDE_LD_PRELOAD";
// Variables that were added for the child binary's own start and that PHP scripts must not see, separated by
// ':' (PHP_FCGI_MAX_REQUESTS and the like).
inline constexpr char hidden_variable[] = "CEDE_HIDE";

// --- supervisor -> child: end your request (--request-timeout). With the number of requests that it had
// begun by then as its value (sigqueue(3)), so that no later one is meant. Not SIGRTMIN, which PHP's
// threaded builds take for their own time limit, nor SIGRTMAX, which is what others take. ---
inline constexpr int overtime_signal = 61;

// --- zygote -> supervisor ---
enum class ZygoteSays : std::uint32_t {
    hello = 1,   // the agent is loaded in `pid`, PHP has not started yet
    ready,       // PHP has started and asked for its first connection; `number` is its count of tasks
    forked,      // `slot` has a child, `pid`
    not_forked,  // `number` is the errno of fork(2)
    ended,       // PHP ends without having asked for a connection
};
struct ZygoteReport {
    std::uint32_t version = protocol_version;
    ZygoteSays says = ZygoteSays::hello;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::int32_t pid = 0;
    std::int32_t number = 0;
    // `ready`: what its children will speak.
    protocol::Protocol protocol = protocol::Protocol::unknown;
    char sapi[16] = {};  // PHP's own name for its server interface, "cgi-fcgi"; empty if unknown
};

// An open file by what fstat(2) says of it.
struct FileId {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;  // 0: none
};

// --- supervisor -> zygote, with the child's end of its channel attached and, behind it, the pipe for the
// child's output if it is to have one of its own ---
struct ForkOrder {
    std::uint32_t version = protocol_version;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::uint32_t reserved = 0;
    // The zygote's own output. Where the child's descriptors 1 and 2 lead there, its pipe takes their place;
    // what PHP or a wrapper has redirected stays.
    FileId replaced;
};

// --- child -> supervisor: by the child's channel, but for those with a descriptor, which go the handoff
// queue's socket backwards, so that one system call of the supervisor receives those of many children ---
enum class ChildSays : std::uint32_t {
    ready = 1,     // asked for its first connection
    park,          // gives a connection up; its descriptor is attached
    park_partial,  // the same, with a part of a request in it, which nobody has read: it is not to come back
                   // before there is enough to run
    see_off,  // as `park`, but its peer has been told to close it: to be closed after a while if it does not
    linger,   // as `park`: it has been answered, and its peer still sends: to be closed when that ends
    look,     // has left `free` although the supervisor reckoned with it: look again who waits
    pass_on,  // was woken for a connection that it has not taken: somebody else must be woken for it
    refused,  // has refused a request, for `why`; at the most once a second
};
struct ChildReport {
    ChildSays says = ChildSays::ready;
    protocol::Outcome why = protocol::Outcome::done;
    protocol::Protocol spoken = protocol::Protocol::unknown;  // `refused`: by the look of the first byte
    std::uint8_t fresh = 0;  // park, park_partial: not 0: nothing was ever answered on this connection
    std::uint8_t reserved = 0;
};

// --- supervisor -> child: a doorbell. What it means stands in the scoreboard (slot state, Control::mode).
// ---
struct Doorbell {
    std::uint32_t reserved[2] = {};
};

// --- supervisor -> any free child: a connection with a request, attached ---
struct Handoff {
    std::uint64_t readable_since_ns = 0;  // CLOCK_MONOTONIC: the request waits since then
    // Not 0: it is a part of a request, and the rest has to be waited for by whoever takes it.
    std::uint32_t as_it_is = 0;
    std::uint32_t reserved = 0;
};

}  // namespace cede::children
