// SPDX-License-Identifier: Apache-2.0
#include "children/agent/take.h"

#include <cerrno>
#include <sys/epoll.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/fd_passing.h"
#include "children/zygote_protocol.h"

namespace cede::agent {

using children::ChildState;
using children::RunMode;
using children::Waiting;

namespace {

// Taking connections without sleeping hears nothing from the supervisor; so look now and then.
constexpr std::uint32_t takes_between_looks = 8;

int accept_any(sockaddr* address, socklen_t* length) noexcept {
    const socklen_t room = length != nullptr ? *length : 0;
    for (int i = 0; i < agent.listener_count; ++i) {
        if (length != nullptr) {
            *length = room;
        }
        const int fd = libc().accept4(agent.listeners[i], address, length, SOCK_CLOEXEC);
        if (fd >= 0) {
            count(agent.slot->accepted);
            return fd;
        }
    }
    return -1;
}

int take_handed(sockaddr* address, socklen_t* length) noexcept {
    children::Handoff handoff;
    const auto handed = children::receive_message(agent.handoff, &handoff, sizeof handoff, false);
    if (handed.fd < 0) {
        return -1;
    }
    count(agent.slot->taken);
    if (address != nullptr && length != nullptr) {
        getpeername(handed.fd, address, length);
    }
    return handed.fd;
}

enum Source : unsigned { no_source = 0, listen_queue = 1, handoff_queue = 2 };

struct Taken {
    int fd = -1;
    unsigned from = no_source;
};

// Listen queue and handoff queue in turn: whoever always looks into one first starves the other.
Taken take_any(sockaddr* address, socklen_t* length) noexcept {
    for (int attempt = 0; attempt < 2; ++attempt) {
        const unsigned from = agent.prefer_handoff ? handoff_queue : listen_queue;
        agent.prefer_handoff = !agent.prefer_handoff;
        const int fd = from == handoff_queue ? take_handed(address, length) : accept_any(address, length);
        if (fd >= 0) {
            return {fd, from};
        }
    }
    return {};
}

enum class Slept { look, leave, interrupted };

// Sleeps until a source may have something. `signalled`: the sources that had; `many`: more than one socket.
Slept sleep_free(int timeout, unsigned& signalled, bool& many) noexcept {
    epoll_event events[max_listeners + 2];
    const int ready = epoll_wait(agent.epoll, events, max_listeners + 2, timeout);
    agent.takes_unwatched = 0;
    if (ready < 0) {
        return errno == EINTR ? Slept::interrupted : Slept::leave;
    }
    int sockets = 0;
    for (int i = 0; i < ready; ++i) {
        if (events[i].data.fd == agent.channel) {
            if (!hear_supervisor()) {
                return Slept::leave;
            }
            continue;
        }
        ++sockets;
        signalled |= events[i].data.fd == agent.handoff ? handoff_queue : listen_queue;
    }
    many = many || sockets > 1;
    return Slept::look;
}

// Publishes that the child is no longer free, and passes a wake-up on that was meant for somebody else: if
// both queues had woken us, or we took from the one that had not, a connection waits of which nobody else was
// told.
int took(const Taken& taken, unsigned signalled, bool many) noexcept {
    publish(ChildState::reading);
    if (many || (signalled & ~taken.from) != 0 || waiting() == Waiting::attention) {
        ring();
    }
    return taken.fd;
}

}  // namespace

int take_connection(sockaddr* address, socklen_t* length) noexcept {
    publish_rest(ChildState::free);
    unsigned signalled = no_source;
    bool many = false;
    for (bool look_first = waiting() != Waiting::nobody;; look_first = true) {
        const RunMode now = mode();
        if (now == RunMode::stop || agent.orphaned) {
            return leave();
        }
        if (look_first || now == RunMode::drain) {
            if (agent.takes_unwatched >= takes_between_looks &&
                sleep_free(0, signalled, many) == Slept::leave) {
                return leave();
            }
            if (const Taken taken = take_any(address, length); taken.fd >= 0) {
                ++agent.takes_unwatched;
                return took(taken, signalled, many);
            }
            if (now == RunMode::drain) {
                return leave();
            }
            if (waiting() == Waiting::pressure) {
                ring();
            }
        }
        signalled = no_source;
        many = false;
        switch (sleep_free(-1, signalled, many)) {
            case Slept::leave:
                return leave();
            case Slept::interrupted:
                errno = EINTR;
                return -1;
            case Slept::look:
                break;
        }
        if (signalled == listen_queue || signalled == handoff_queue) {
            agent.prefer_handoff = signalled == handoff_queue;
        }
    }
}

int leave() noexcept {
    publish(ChildState::exiting);
    errno = EINVAL;
    return -1;
}

}  // namespace cede::agent
