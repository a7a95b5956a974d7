// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

// Where a free child takes its next connection: from the listen queues or from the handoff queue.
namespace cede::agent {

// Waits in state `free`. A connection, the state then being `reading`; or -1 with errno: EINTR (PHP looks at
// its own flags and comes back), EINVAL (PHP is to end).
int take_connection(sockaddr* address, socklen_t* length) noexcept;

// This child is to end as soon as it has no request: it has served as many as one may, or was told so.
[[nodiscard]] bool retiring() noexcept;

// Publishes that this child will take nothing more. Returns -1 with EINVAL; in a stop at once it ends the
// process.
int leave() noexcept;

}  // namespace cede::agent
