// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

// The functions behind the agent's wrappers: the next definition in the search order (dlsym(3), RTLD_NEXT),
// so that another preloaded library keeps its place.
namespace cede::agent {

struct Libc {
    int (*accept)(int, sockaddr*, socklen_t*);
    int (*accept4)(int, sockaddr*, socklen_t*, int);
    ssize_t (*read)(int, void*, size_t);
    ssize_t (*recv)(int, void*, size_t, int);
    ssize_t (*write)(int, const void*, size_t);
    ssize_t (*send)(int, const void*, size_t, int);
    ssize_t (*writev)(int, const iovec*, int);
    int (*poll)(pollfd*, nfds_t, int);
    int (*select)(int, fd_set*, fd_set*, fd_set*, timeval*);
    int (*shutdown)(int, int);
    int (*close)(int);
    int (*sigaction)(int, const struct sigaction*, struct sigaction*);
};

// Resolved at the first call: constructors of other libraries may run before ours.
const Libc& libc() noexcept;

}  // namespace cede::agent
