// SPDX-License-Identifier: Apache-2.0
// The exported wrappers: each decides whether the call is about the listener or the current connection, and
// goes straight to libc if not. errno is what libc would leave.
#include "children/agent/entry.h"

#include <cerrno>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "children/agent/agent.h"
#include "children/agent/head.h"
#include "children/agent/libc.h"
#include "children/agent/overtime.h"
#include "children/agent/slow_peer.h"
#include "children/agent/title.h"
#include "children/agent/voice.h"
#include "children/agent/wait.h"

namespace cede::agent {

constinit Agent agent{};

namespace {

int accept_as_child(sockaddr* address, socklen_t* length) noexcept {
    if (agent.role == Role::newborn && !grow_up(agent.listener_fd, protocol::Protocol::fastcgi)) {
        errno = EINVAL;
        return -1;
    }
    if (agent.role == Role::child && agent.listener_fd != 0) {
        return accept_selected(address, length);
    }
    if (agent.role == Role::child) {
        return next_connection(address, length);
    }
    errno = EINVAL;
    return -1;
}

ssize_t read_connection(void* to, size_t size) noexcept {
    Connection& connection = agent.connection;
    if (size == 0) {
        return 0;
    }
    if (connection.available()) {
        if (connection.begins()) {  // it came together with the request before
            publish_progress();
        }
        return static_cast<ssize_t>(connection.take(to, size));
    }
    if (connection.over) {
        return 0;
    }
    if (connection.at_rest()) {
        switch (wait_for_request(false)) {
            case Wake::request:
                return static_cast<ssize_t>(connection.take(to, size));
            case Wake::gone:
            case Wake::leave:
                return 0;
            case Wake::interrupted:
                errno = EINTR;
                return -1;
        }
    }
    const bool was_running = connection.running();
    if (!was_running) {
        publish_progress();  // it may still say busy, of the request before
    }
    if (connection.in_head()) {
        const More more = wait_for_more_of_head();
        if (more == More::interrupted) {
            errno = EINTR;
            return -1;
        }
        if (more != More::here) {
            connection.over = true;
            errno = 0;  // of a 0 with EINTR PHP makes that it is to read again
            return 0;
        }
    }
    if (connection.worth_receiving(size)) {
        const ssize_t received = receive_slowly(to, size);
        if (connection.begins()) {
            publish_progress();
        }
        return received;
    }
    switch (fill_slowly()) {
        case Filled::data:
            (void)connection.admit();
            if (!was_running || connection.begins()) {
                publish_progress();
            }
            return static_cast<ssize_t>(connection.take(to, size));
        case Filled::end:
            return 0;
        case Filled::failed:
            break;
    }
    return -1;
}

// After the answer PHP says that it will write no more and then reads until its peer closes (KEEP_CONN off).
int shutdown_connection(int fd, int how) noexcept {
    Connection& connection = agent.connection;
    if (how == SHUT_WR && connection.answered()) {
        connection.closing = true;
        connection.shutdown_deferred = true;
        return 0;
    }
    return libc().shutdown(fd, how);
}

ssize_t receive_connection(void* to, size_t size, int flags) noexcept {
    if (agent.connection.closing) {
        linger();
        return 0;
    }
    return flags == 0 ? read_connection(to, size) : libc().recv(agent.connection.fd(), to, size, flags);
}

// Not inlined: glibc declares poll's argument as write-only, and the compiler would call reading it a
// mistake.
[[gnu::noinline]] int poll_connection(pollfd* watched, nfds_t count, int timeout) noexcept {
    // Only there is the argument looked at: elsewhere a bad pointer is the kernel's to refuse.
    if (count == 1 && agent.connection.new_to_php && ours(watched->fd) && (watched->events & POLLIN) != 0 &&
        agent.connection.available()) {
        watched->revents = POLLIN;
        return 1;
    }
    return libc().poll(watched, count, timeout);
}

// litespeed_finish_request() tells the peer to close and closes at once; a request that crosses would be
// lost.
void end_connection() noexcept {
    if (agent.connection.close_announced() && !agent.connection.over && agent.connection.at_rest()) {
        (void)see_off();
    }
    agent.connection.forget();
}

// glibc gives constructors what main() gets.
__attribute__((constructor)) void start(int argc, char** argv, char** environment) noexcept {
    (void)libc();
    keep_title_room(argc, argv, environment);  // before the environment is cleaned
    if (!read_environment()) {
        return;
    }
    agent.role = Role::newborn;
    pthread_atfork(nullptr, nullptr, [] {
        if (agent.role == Role::child) {
            become_stranger();
        }
    });
    say_hello();
}

__attribute__((destructor)) void end() noexcept {
    if (agent.role == Role::newborn) {
        say_goodbye();
    }
}

}  // namespace

bool ours(int fd) noexcept {
    return agent.connection.is(fd) && agent.role == Role::child;
}

void note_written(const iovec* parts, int count, ssize_t written, bool had_begun) noexcept {
    if (written <= 0 || agent.connection.fd() < 0) {
        return;
    }
    auto left = static_cast<std::size_t>(written);
    bool whole = true;
    for (int i = 0; i < count; ++i) {
        const std::size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
        whole = whole && size == parts[i].iov_len;
        left -= size;
        if (size > 0 && agent.connection.wrote(parts[i].iov_base, size)) {
            agent::count(agent.slot->requests);
            record_end();
            publish(children::ChildState::finishing);
        }
    }
    if (whole && !had_begun) {
        note_whole_write(parts, count);
    }
}

}  // namespace cede::agent

using cede::agent::agent;
using cede::agent::libc;
using cede::agent::Role;

CEDE_EXPORT int accept(int fd, sockaddr* address, socklen_t* length) {
    if (fd == agent.listener_fd && agent.role != Role::bystander) {
        return cede::agent::accept_as_child(address, length);
    }
    return libc().accept(fd, address, length);
}

CEDE_EXPORT int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
    if (fd == agent.listener_fd && agent.role != Role::bystander) {
        return cede::agent::accept_as_child(address, length);
    }
    return libc().accept4(fd, address, length, flags);
}

CEDE_EXPORT ssize_t read(int fd, void* to, size_t size) {
    return cede::agent::ours(fd) ? cede::agent::read_connection(to, size) : libc().read(fd, to, size);
}

CEDE_EXPORT ssize_t __read_chk(int fd, void* to, size_t size, size_t room) {
    return read(fd, to, size < room ? size : room);
}

CEDE_EXPORT ssize_t recv(int fd, void* to, size_t size, int flags) {
    return cede::agent::ours(fd) ? cede::agent::receive_connection(to, size, flags)
                                 : libc().recv(fd, to, size, flags);
}

CEDE_EXPORT ssize_t __recv_chk(int fd, void* to, size_t size, size_t room, int flags) {
    return recv(fd, to, size < room ? size : room, flags);
}

CEDE_EXPORT ssize_t write(int fd, const void* from, size_t size) {
    if (!cede::agent::ours(fd)) {
        return libc().write(fd, from, size);
    }
    const iovec part{const_cast<void*>(from), size};
    const bool had_begun = cede::agent::note_writing(&part, 1);
    const ssize_t written = cede::agent::send_slowly(&part, 1, 0);
    cede::agent::note_written(&part, 1, written, had_begun);
    return written;
}

CEDE_EXPORT ssize_t send(int fd, const void* from, size_t size, int flags) {
    if (!cede::agent::ours(fd)) {
        return libc().send(fd, from, size, flags);
    }
    const iovec part{const_cast<void*>(from), size};
    const bool had_begun = cede::agent::note_writing(&part, 1);
    const ssize_t written = cede::agent::send_slowly(&part, 1, flags);
    cede::agent::note_written(&part, 1, written, had_begun);
    return written;
}

CEDE_EXPORT int poll(pollfd* watched, nfds_t count, int timeout) {
    return cede::agent::poll_connection(watched, count, timeout);
}

CEDE_EXPORT int __poll_chk(pollfd* watched, nfds_t count, int timeout, size_t room) {
    const nfds_t fits = room / sizeof(pollfd);
    return poll(watched, count < fits ? count : fits, timeout);
}

CEDE_EXPORT int shutdown(int fd, int how) {
    return cede::agent::ours(fd) ? cede::agent::shutdown_connection(fd, how) : libc().shutdown(fd, how);
}

CEDE_EXPORT int close(int fd) {
    if (cede::agent::ours(fd)) {
        cede::agent::end_connection();
    }
    return libc().close(fd);
}
