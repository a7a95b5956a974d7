// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

// Where a child waits: for a connection, for the next request on it, for a slow peer's end. Here it publishes
// its state, hears the supervisor, and gives its connection up. docs/states.md has the moves.
namespace cede::agent {

// accept(2) for the child: returns a connection whose first bytes are there, or -1 with errno: EINTR (PHP
// looks at its own flags and comes back), EINVAL (PHP is to end).
int next_connection(sockaddr* address, socklen_t* length) noexcept;

enum class Wake {
    request,      // bytes are in the buffer
    gone,         // the peer closed, or the connection was given up: PHP is to close its copy
    leave,        // the supervisor wants this child to end, or is no more
    interrupted,  // a signal that PHP may care about
};
// Waits on a connection at rest. `fresh`: it was just accepted.
Wake wait_for_request(bool fresh) noexcept;

// The end of a connection whose peer may still be sending: reads and drops, for a second at the most, so that
// the answer is not cut off by a reset; not at all if the peer has nothing left to send.
void linger() noexcept;

// Hands a connection whose peer has been told to close it to the supervisor, which closes it when the peer
// has, or serves what was on its way. False: it stays ours.
bool see_off() noexcept;

// Publishes reading or busy, whichever the connection's bytes say.
void publish_progress() noexcept;

}  // namespace cede::agent
