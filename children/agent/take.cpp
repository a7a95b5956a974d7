// SPDX-License-Identifier: Apache-2.0
#include "children/agent/take.h"

#include <cerrno>
#include <sys/epoll.h>
#include <unistd.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/fd_passing.h"
#include "children/zygote_protocol.h"

namespace cede::agent {

using children::ChildSays;
using children::ChildState;
using children::RunMode;
using children::Waiting;

namespace {

// Taking connections without sleeping hears nothing from the supervisor; so look now and then.
constexpr std::uint32_t takes_between_looks = 8;
constexpr std::uint32_t listen_passes_when_empty = 3;
constexpr int out_of_memory_pause_ms = 10;

// From whichever listener has one, beginning behind the one that had the last.
int accept_any(sockaddr* address, socklen_t* length) noexcept {
    const socklen_t room = length != nullptr ? *length : 0;
    for (int i = 0; i < agent.listener_count; ++i) {
        const int next = (agent.last_listener + 1 + i) % agent.listener_count;
        if (length != nullptr) {
            *length = room;
        }
        const int fd = libc().accept4(agent.listeners[next], address, length, SOCK_CLOEXEC);
        if (fd >= 0) {
            agent.last_listener = next;
            agent.arrival = {Arrival::From::listener, agent.over_tcp[next], 0, false};
            agent.newly_accepted = true;
            count(agent.slot->accepted);
            return fd;
        }
        if (errno == EMFILE) {
            agent.exhausted = true;  // this PHP leaks descriptors: a new child has room again
        } else if (errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            libc().poll(nullptr, 0,
                        out_of_memory_pause_ms);  // the connection stays queued: do not spin on it
        }
    }
    return -1;
}

int take_handed(sockaddr* address, socklen_t* length) noexcept {
    children::Handoff handoff;
    const auto handed = children::receive_message(agent.handoff, &handoff, sizeof handoff, false);
    if (handed.fd < 0) {
        // A message without its descriptor: there was no room for it in this process.
        agent.exhausted = agent.exhausted || handed.kind == children::Received::Kind::message;
        return -1;
    }
    agent.arrival = {Arrival::From::handoff, false, handoff.readable_since_ns, handoff.as_it_is != 0};
    agent.newly_accepted = false;
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

bool listen_queue_is_for_the_next_one() noexcept {
    return mode() == RunMode::drain &&
           agent.control->listeners_inherited.load(std::memory_order_relaxed) != 0;
}

// Listen queue and handoff queue in turn: whoever always looks into one first starves the other. A listen
// queue that was empty is passed over for a few turns, as long as the other one has something.
Taken take_any(sockaddr* address, socklen_t* length) noexcept {
    const bool listen_first = !agent.prefer_handoff && agent.listen_passes == 0;
    agent.listen_passes -= agent.listen_passes > 0 ? 1U : 0U;
    for (const bool first : {true, false}) {
        const unsigned from = first == listen_first ? listen_queue : handoff_queue;
        if ((from == listen_queue && listen_queue_is_for_the_next_one()) ||
            (from == handoff_queue && agent.reserved && mode() == RunMode::serve)) {
            continue;
        }
        const int fd = from == handoff_queue ? take_handed(address, length) : accept_any(address, length);
        if (fd >= 0) {
            agent.prefer_handoff = from == listen_queue;
            return {fd, from};
        }
        if (from == listen_queue) {
            agent.listen_passes = listen_passes_when_empty;
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

// Publishes that the child is no longer free, and passes a wake-up on that was meant for somebody else. The
// kernel wakes one sleeper for each arrival and puts it on nobody else's list (EPOLLEXCLUSIVE): if both
// queues had woken us, or we took from the one that had not, a connection waits of which no other sleeping
// child knows.
int took(const Taken& taken, unsigned signalled, bool many) noexcept {
    publish(ChildState::reading);
    if (many || (signalled & ~taken.from) != 0 || agent.sleep_broken) {
        agent.sleep_broken = false;
        ring(ChildSays::pass_on);
    } else if (waiting() == Waiting::attention) {
        ring(ChildSays::look);
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
        if (now == RunMode::stop || agent.orphaned || agent.exhausted || retiring()) {
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
        }
        signalled = no_source;
        many = false;
        switch (sleep_free(-1, signalled, many)) {
            case Slept::leave:
                return leave();
            case Slept::interrupted:
                agent.sleep_broken = true;
                errno = EINTR;
                return -1;
            case Slept::look:
                break;
        }
        if (signalled == listen_queue || signalled == handoff_queue) {
            agent.prefer_handoff = signalled == handoff_queue;
            agent.listen_passes = 0;
        }
    }
}

bool retiring() noexcept {
    const std::uint64_t quota = agent.slot->quota.load(std::memory_order_relaxed);
    return agent.slot->retire.load(std::memory_order_relaxed) != 0 ||
           (quota != 0 && agent.slot->begun.load(std::memory_order_relaxed) >= quota);
}

int leave() noexcept {
    publish(ChildState::exiting);
    if (mode() == RunMode::stop) {
        // As php-fpm's children on TERM: PHP's own shutdown takes tens of milliseconds of CPU time a child.
        _exit(0);
    }
    errno = EINVAL;
    return -1;
}

}  // namespace cede::agent
