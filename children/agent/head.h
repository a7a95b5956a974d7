// SPDX-License-Identifier: Apache-2.0
#pragma once

// The head of a request that arrives in pieces, and the time in which it must be complete
// (Control::read_timeout_ms): for all of it, from the first byte on.
namespace cede::agent {

enum class More {
    here,         // bytes have come
    gone,         // the peer has, or the time is over: which has been reported
    leave,        // the supervisor wants this child to end at once, or is no more
    interrupted,  // by a signal that PHP may care about
};

// FastCGI, whose heads PHP reads itself: waits until there is more to read. Never `leave`.
More wait_for_more_of_head() noexcept;
// LSAPI, whose heads are kept from PHP until they are complete: reads more. Never `interrupted`. What was
// read ahead of PHP can be given to no other child, so that of the supervisor's words only a stop ends this.
More read_more_of_head() noexcept;

}  // namespace cede::agent
