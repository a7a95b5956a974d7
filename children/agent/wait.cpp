// SPDX-License-Identifier: Apache-2.0
#include "children/agent/wait.h"

#include <cerrno>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/fd_passing.h"
#include "children/zygote_protocol.h"

namespace cede::agent {

using children::ChildReport;
using children::ChildSays;
using children::ChildState;
using children::RunMode;
using children::Waiting;

namespace {

constexpr std::uint64_t linger_ns = 1'000'000'000;
// Taking connections without sleeping hears nothing from the supervisor; so look now and then.
constexpr std::uint32_t takes_between_looks = 8;

std::uint64_t now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

void count(std::atomic<std::uint64_t>& counter) noexcept {
    // One writer: a plain increment, without the cost of a locked one.
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Sequentially consistent on purpose: what follows reads Control::waiting, and the supervisor does the
// reverse. One of the two always sees the other.
void publish(ChildState state) noexcept {
    agent.slot->state.store(state, std::memory_order_seq_cst);
}

void publish_rest(ChildState state) noexcept {
    agent.slot->since_ns.store(now_ns(), std::memory_order_relaxed);
    publish(state);
}

Waiting waiting() noexcept {
    return agent.control->waiting.load(std::memory_order_seq_cst);
}
RunMode mode() noexcept {
    return agent.control->mode.load(std::memory_order_relaxed);
}

void ring(ChildSays says) noexcept {
    const ChildReport report{says, 0};
    (void)children::send_message(agent.channel, &report, sizeof report, -1);
}

// Empties the channel. False when the supervisor is gone.
bool hear_supervisor() noexcept {
    for (;;) {
        children::Doorbell bell;
        const auto heard = children::receive_message(agent.channel, &bell, sizeof bell, false);
        if (heard.fd >= 0) {
            libc().close(heard.fd);
        }
        if (heard.kind != children::Received::Kind::message) {
            agent.orphaned = heard.kind != children::Received::Kind::nothing;
            return !agent.orphaned;
        }
    }
}

bool move_from_idle(ChildState to) noexcept {
    ChildState expected = ChildState::idle;
    return agent.slot->state.compare_exchange_strong(expected, to, std::memory_order_seq_cst);
}

// --- taking a connection ---

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

int leave() noexcept {
    publish(ChildState::exiting);
    errno = EINVAL;
    return -1;
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
        ring(ChildSays::look);
    }
    return taken.fd;
}

// Waits in state `free`. A connection, or -1 with errno as next_connection() has it.
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
                ring(ChildSays::look);
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

// --- giving a connection up ---

Wake serve_buffered() noexcept {
    publish_progress();
    return Wake::request;
}

Wake fill_or_wait(bool& again) noexcept {
    again = false;
    switch (agent.connection.fill(false)) {
        case Connection::Fill::data:
            return serve_buffered();
        case Connection::Fill::nothing:
        case Connection::Fill::interrupted:
            again = true;
            return Wake::interrupted;
        case Connection::Fill::end:
        case Connection::Fill::failed:
            break;
    }
    return Wake::gone;
}

// By closing: a last look first, so that a request which has come is served and not reset.
Wake close_unless_asked() noexcept {
    bool again = false;
    const Wake wake = fill_or_wait(again);
    if (again) {
        count(agent.slot->closed);
        return Wake::gone;
    }
    return wake;
}

// In state giving_up, which lasts until the child is free.
Wake give_up() noexcept {
    if (agent.control->give_up_by.load(std::memory_order_relaxed) == children::GiveUpBy::parking) {
        const ChildReport report{ChildSays::park, 0};
        if (children::send_message(agent.channel, &report, sizeof report, agent.connection.fd())) {
            count(agent.slot->parked);
            return Wake::gone;
        }
    }
    return close_unless_asked();
}

// Whether one more kept connection would be above the limit. Our own slot already says idle, so of two
// children that look at the same time both may see too many, but never both too few.
bool above_keepalive_limit() noexcept {
    const std::uint32_t limit = agent.control->keepalive_limit.load(std::memory_order_relaxed);
    if (limit == children::no_keepalive_limit) {
        return false;
    }
    std::uint32_t connected = 0;
    for (std::uint32_t i = 0; i < agent.slot_count; ++i) {
        const ChildState state = agent.slots[i].state.load(std::memory_order_seq_cst);
        connected += state == ChildState::reading || state == ChildState::busy || state == ChildState::idle;
    }
    return connected > limit;
}

// What may make an idle child give up without being told. `decided` is set when it did.
Wake reasons_to_give_up(bool fresh, bool& decided) noexcept {
    decided = true;
    switch (mode()) {
        case RunMode::stop:
            return Wake::leave;
        case RunMode::drain:
            return close_unless_asked();
        case RunMode::serve:
            break;
    }
    if (!fresh && above_keepalive_limit()) {
        move_from_idle(ChildState::giving_up);
        return close_unless_asked();
    }
    if (waiting() == Waiting::pressure) {
        move_from_idle(ChildState::giving_up);
        return give_up();
    }
    decided = false;
    return Wake::interrupted;
}

}  // namespace

void publish_progress() noexcept {
    publish(agent.connection.running() ? ChildState::busy : ChildState::reading);
}

Wake wait_for_request(bool fresh) noexcept {
    bool again = false;
    if (fresh) {
        const Wake wake = fill_or_wait(again);
        if (!again) {
            return wake;
        }
    }
    publish_rest(ChildState::idle);
    bool decided = false;
    if (const Wake wake = reasons_to_give_up(fresh, decided); decided) {
        return wake;
    }
    for (;;) {
        pollfd watched[2] = {{agent.connection.fd(), POLLIN, 0}, {agent.channel, POLLIN, 0}};
        if (libc().poll(watched, 2, -1) < 0) {
            return errno == EINTR ? Wake::interrupted : Wake::leave;
        }
        if (watched[1].revents != 0) {
            if (!hear_supervisor()) {
                return Wake::leave;
            }
            if (agent.slot->state.load(std::memory_order_seq_cst) == ChildState::giving_up) {
                return give_up();
            }
            if (const Wake wake = reasons_to_give_up(fresh, decided); decided) {
                return wake;
            }
        }
        if (watched[0].revents != 0) {
            if (!move_from_idle(ChildState::reading)) {
                return give_up();
            }
            const Wake wake = fill_or_wait(again);
            if (!again) {
                return wake;
            }
            publish_rest(ChildState::idle);
        }
    }
}

int next_connection(sockaddr* address, socklen_t* length) noexcept {
    const socklen_t room = length != nullptr ? *length : 0;
    for (;;) {
        if (length != nullptr) {
            *length = room;
        }
        const int fd = take_connection(address, length);
        if (fd < 0) {
            return -1;
        }
        agent.connection.open(fd);
        Wake wake = wait_for_request(true);
        const bool interrupted = wake == Wake::interrupted;
        if (interrupted) {
            // PHP must see the signal now, and has not seen the connection, which must not be lost.
            publish(ChildState::giving_up);
            wake = give_up();
        }
        if (wake == Wake::request) {
            return fd;
        }
        agent.connection.forget();
        libc().close(fd);
        if (wake == Wake::leave) {
            return leave();
        }
        if (interrupted) {
            errno = EINTR;
            return -1;
        }
    }
}

void linger() noexcept {
    Connection& connection = agent.connection;
    const std::uint64_t deadline = now_ns() + linger_ns;
    bool resting = false;
    for (;;) {
        const Connection::Fill got = connection.fill(false);
        connection.discard_buffer();
        if (got == Connection::Fill::data) {
            continue;
        }
        if (got == Connection::Fill::end || got == Connection::Fill::failed ||
            connection.request_complete()) {
            return;
        }
        if (!resting) {
            resting = true;
            if (connection.shutdown_deferred) {
                connection.shutdown_deferred = false;
                libc().shutdown(connection.fd(), SHUT_WR);
            }
            publish_rest(ChildState::idle);
        }
        const std::uint64_t now = now_ns();
        if (now >= deadline || mode() != RunMode::serve || waiting() != Waiting::nobody ||
            agent.slot->state.load(std::memory_order_seq_cst) != ChildState::idle) {
            move_from_idle(ChildState::giving_up);
            return;
        }
        pollfd watched[2] = {{connection.fd(), POLLIN, 0}, {agent.channel, POLLIN, 0}};
        libc().poll(watched, 2, static_cast<int>((deadline - now) / 1'000'000U) + 1);
        if (watched[1].revents != 0 && !hear_supervisor()) {
            return;
        }
    }
}

}  // namespace cede::agent
