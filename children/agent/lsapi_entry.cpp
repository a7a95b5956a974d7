// SPDX-License-Identifier: Apache-2.0
// The wrappers for lsphp, which does all its waiting in select(2), with one descriptor and a limit of a
// second at a time, and answers by writev(2) (php-src, sapi/litespeed/lsapilib.c).
#include <cerrno>
#include <cstring>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "children/agent/agent.h"
#include "children/agent/entry.h"
#include "children/agent/libc.h"
#include "children/agent/overtime.h"
#include "children/agent/slow_peer.h"
#include "children/agent/wait.h"

namespace cede::agent {
namespace {

// Taken in select(2), not yet asked for by accept(2).
struct Selected {
    int fd = -1;
    socklen_t length = 0;
    sockaddr_storage address{};
};
constinit Selected selected{};

bool is_listener(int fd) noexcept {
    const int before = errno;  // the program may look at it behind a select(2) that was none of ours
    struct stat one {};
    struct stat other {};
    const bool known =
        agent.listener_count > 0 && fstat(fd, &one) == 0 && fstat(agent.listeners[0], &other) == 0;
    errno = before;
    return known && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int select_listener() noexcept {
    if (selected.fd < 0) {
        selected.length = sizeof selected.address;
        selected.fd = next_connection(reinterpret_cast<sockaddr*>(&selected.address), &selected.length);
    }
    return selected.fd < 0 ? -1 : 1;
}

// A script may leave a part of its request unread. lsphp would take it for the next request.
bool skip_rest_of_request() noexcept {
    Connection& connection = agent.connection;
    connection.discard_available();
    if (!connection.request_complete()) {
        linger();
    }
    return connection.request_complete();
}

int select_connection() noexcept {
    Connection& connection = agent.connection;
    if (connection.over || (!connection.answered() && connection.available())) {
        return 1;
    }
    if (connection.answered() && !skip_rest_of_request()) {
        connection.over = true;
        return 1;
    }
    switch (wait_for_request(false)) {
        case Wake::interrupted:
            errno = EINTR;
            return -1;
        case Wake::gone:
        case Wake::leave:
            connection.over = true;
            break;
        case Wake::request:
            break;
    }
    return 1;
}

// select(2) waits for this descriptor alone. Only for a descriptor that is ours are the sets looked at:
// elsewhere a bad pointer is the kernel's to refuse.
bool watches(int fd, const fd_set* readable, const fd_set* writable, const fd_set* other) noexcept {
    return readable != nullptr && writable == nullptr && other == nullptr && FD_ISSET(fd, readable);
}

}  // namespace

int accept_selected(sockaddr* address, socklen_t* length) noexcept {
    if (selected.fd < 0) {
        errno = EAGAIN;
        return -1;
    }
    if (address != nullptr && length != nullptr) {
        std::memcpy(address, &selected.address, *length < selected.length ? *length : selected.length);
        *length = selected.length;
    }
    const int fd = selected.fd;
    selected.fd = -1;
    return fd;
}

}  // namespace cede::agent

using cede::agent::agent;
using cede::agent::libc;
using cede::agent::Role;

CEDE_EXPORT int select(int count, fd_set* readable, fd_set* writable, fd_set* other, timeval* timeout) {
    const int fd = count - 1;
    const bool alone = fd >= 0 && fd < FD_SETSIZE;
    if (alone && agent.role == Role::newborn && cede::agent::is_listener(fd) &&
        cede::agent::watches(fd, readable, writable, other)) {
        if (!cede::agent::grow_up(fd, cede::protocol::Protocol::lsapi)) {
            errno = EINVAL;
            return -1;
        }
        return cede::agent::select_listener();
    }
    if (alone && agent.role == Role::child && fd != 0 && fd == agent.listener_fd &&
        cede::agent::watches(fd, readable, writable, other)) {
        return cede::agent::select_listener();
    }
    if (alone && cede::agent::ours(fd) && cede::agent::watches(fd, readable, writable, other)) {
        return cede::agent::select_connection();
    }
    return libc().select(count, readable, writable, other, timeout);
}

CEDE_EXPORT ssize_t writev(int fd, const iovec* parts, int count) {
    if (!cede::agent::ours(fd) || count <= 0) {
        return libc().writev(fd, parts, count);
    }
    const bool had_begun = cede::agent::note_writing(parts, count);
    const ssize_t written = cede::agent::send_slowly(parts, count, 0);
    cede::agent::note_written(parts, count, written, had_begun);
    return written;
}
