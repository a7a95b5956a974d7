// SPDX-License-Identifier: Apache-2.0
#include "children/agent/wait.h"

#include <cerrno>
#include <poll.h>
#include <time.h>

#include "children/agent/agent.h"
#include "children/agent/give_away.h"
#include "children/agent/head.h"
#include "children/agent/libc.h"
#include "children/agent/request.h"
#include "children/agent/take.h"
#include "children/agent/time_limit.h"
#include "children/agent/voice.h"
#include "children/clock.h"
#include "children/farewell.h"
#include "children/zygote_protocol.h"

namespace cede::agent {

using children::ChildSays;
using children::ChildState;
using children::Keeps;
using children::RunMode;
using children::Waiting;
using protocol::Outcome;
using protocol::Protocol;

namespace {

constexpr std::uint64_t ns_in_ms = 1'000'000;
constexpr int farewell_ms = 50;

// Something has come. `again`: it meant nothing.
Wake admit_request(bool& again) noexcept {
    Connection& connection = agent.connection;
    connection.head_since_ns = 0;
    for (again = false;;) {
        const Outcome outcome = connection.admit();
        again = !connection.buffered();
        if (again) {
            return Wake::interrupted;
        }
        publish_progress();
        if (outcome == Outcome::done) {
            return Wake::request;
        }
        if (outcome != Outcome::need_more) {
            report_refusal(outcome, connection.looks_like());
            return Wake::gone;
        }
        switch (read_more_of_head()) {
            case More::here:
                break;
            case More::gone:
            case More::interrupted:
                return Wake::gone;
            case More::leave:
                return Wake::leave;
        }
    }
}

// Something may have come, with nothing buffered. `again`: the connection waits on.
Wake look_or_wait(bool& again, bool hung_up = false) noexcept {
    again = false;
    switch (take_request(hung_up)) {
        case Taken::buffered:
            return admit_request(again);
        case Taken::nothing:
        case Taken::interrupted:
            again = true;
            return Wake::interrupted;
        case Taken::gone:
            break;
    }
    return Wake::gone;
}

// By closing: a last look first, so that a request which has come is served and not reset.
Wake close_unless_asked() noexcept {
    bool again = false;
    Wake wake = look_or_wait(again);
    if (!again) {
        return wake;
    }
    if (agent.protocol == Protocol::lsapi && children::announce_close(agent.connection.fd()) && !see_off()) {
        // Nobody else waits for the peer's end then.
        pollfd watched{agent.connection.fd(), POLLIN, 0};
        libc().poll(&watched, 1, farewell_ms);
        wake = look_or_wait(again);
        if (!again) {
            return wake;
        }
    }
    count(agent.slot->closed);
    return Wake::gone;
}

Wake park_or_close() noexcept {
    if (give_away(ChildSays::park)) {
        count(agent.slot->parked);
        return Wake::gone;
    }
    return close_unless_asked();
}

// In state giving_up, which lasts until the child is free.
Wake give_up() noexcept {
    const children::GiveUpBy by = agent.control->give_up_by.load(std::memory_order_relaxed);
    // A web server takes a connection that is closed before any answer for a broken one, and gives a 502.
    const bool parkable = by == children::GiveUpBy::parking ||
                          (by == children::GiveUpBy::closing && !agent.connection.answered());
    // In a drain nobody may be left to hand it to.
    return parkable && mode() != RunMode::drain ? park_or_close() : close_unless_asked();
}

std::uint32_t keepalive_limit() noexcept {
    return agent.control->keepalive_limit.load(std::memory_order_relaxed);
}

// Whether this child may keep its connection, which has had an answer. Who keeps one already makes no room
// for another that asks. Our own slot asks before we count, so of two that ask at the same time both may be
// told no, but never both yes.
bool may_keep() noexcept {
    const std::uint32_t limit = keepalive_limit();
    if (limit == children::no_keepalive_limit) {
        return true;
    }
    const bool asking = agent.slot->keeps.load(std::memory_order_relaxed) != Keeps::settled;
    if (asking) {
        agent.slot->keeps.store(Keeps::asking, std::memory_order_seq_cst);
    }
    std::uint32_t kept = 0;
    const std::uint32_t used = agent.control->slots_used.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < used && i < agent.slot_count; ++i) {
        const ChildState state = agent.slots[i].state.load(std::memory_order_seq_cst);
        const Keeps keeps = agent.slots[i].keeps.load(std::memory_order_seq_cst);
        const bool connected =
            state == ChildState::reading || state == ChildState::busy || state == ChildState::idle;
        const bool counts = keeps == Keeps::settled || (asking && keeps == Keeps::asking);
        kept += connected && counts ? 1U : 0U;
    }
    if (kept > limit) {
        return false;
    }
    agent.slot->keeps.store(Keeps::settled, std::memory_order_seq_cst);
    return true;
}

bool speaks_within(long nanoseconds) noexcept {
    pollfd watched{agent.connection.fd(), POLLIN, 0};
    const timespec moment{0, nanoseconds};
    return ppoll(&watched, 1, &moment, nullptr) > 0;
}

// A peer that has just connected is about to send: that is worth a moment, to spare both a detour. To a
// reserved child nothing ever comes back, and others may be busy for long: it waits as long as health checks
// of a machine under load may take.
bool speaks_soon() noexcept {
    return speaks_within(agent.reserved ? 100'000'000 : 250'000);
}

// Closing costs the peer a new connection. Where a part of the children is kept for new ones
// (--keepalive-limit), those within the limit give their peers a moment for the next request although others
// wait, before they are seen to be idle.
bool next_is_worth_waiting_for() noexcept {
    constexpr long moment_for_next_ns = 20'000'000;
    return agent.control->give_up_by.load(std::memory_order_relaxed) != children::GiveUpBy::parking &&
           waiting() != Waiting::nobody && speaks_within(moment_for_next_ns);
}

Wake fill_or_give_up() noexcept {
    bool again = false;
    const Wake wake = look_or_wait(again);
    return again ? give_up() : wake;
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
    if (retiring()) {
        (void)move_from_idle(ChildState::giving_up);
        return park_or_close();
    }
    if (!fresh && !may_keep()) {
        (void)move_from_idle(ChildState::giving_up);
        return close_unless_asked();
    }
    if (waiting() == Waiting::pressure || agent.reserved) {
        if (fresh && speaks_soon()) {
            return move_from_idle(ChildState::reading) ? fill_or_give_up() : give_up();
        }
        (void)move_from_idle(ChildState::giving_up);
        return give_up();
    }
    decided = false;
    return Wake::interrupted;
}

}  // namespace

void publish_progress() noexcept {
    // In this order: the signal of --request-timeout may come between any two of them.
    if (const std::uint64_t begun = agent.connection.begin(); begun > 0) {
        agent.answer_begun = false;
        agent.request_id = agent.connection.request_id();
        agent.connection.head_since_ns = 0;  // the next head has a time of its own
        count(agent.slot->begun, begun);
        record_wait();
    }
    publish(agent.connection.running() ? ChildState::busy : ChildState::reading);
}

bool see_off() noexcept {
    return can_be_given_away() && give_away(ChildSays::see_off);
}

Wake wait_for_request(bool fresh) noexcept {
    bool again = false;
    if (agent.connection.buffered()) {  // lsphp was kept from reading it together with the request before
        const Wake wake = admit_request(again);
        if (!again) {
            return wake;
        }
    }
    if (fresh) {
        const Wake wake = look_or_wait(again);
        if (!again) {
            return wake;
        }
    }
    const TimeLimit silence{fresh ? agent.control->first_byte_timeout_ms.load(std::memory_order_relaxed) : 0};
    // A signal may have led out of here, and PHP back in. An idle child's state is the supervisor's to
    // change: it must not be stored once more.
    const ChildState before = agent.slot->state.load(std::memory_order_seq_cst);
    bool told = before == ChildState::giving_up;
    const bool limited = keepalive_limit() != children::no_keepalive_limit && mode() == RunMode::serve;
    if (!fresh && !told && before != ChildState::idle && limited && !retiring()) {
        publish(ChildState::reading);
        // At once: what the peer sends meanwhile is served on a connection that should be closed.
        if (!may_keep()) {
            publish(ChildState::giving_up);
            return close_unless_asked();
        }
        if (next_is_worth_waiting_for()) {
            const Wake wake = look_or_wait(again);
            if (!again) {
                return wake;
            }
        }
    }
    for (bool rested = before == ChildState::idle; !told; rested = true) {
        if (!rested || again) {
            publish_rest(ChildState::idle);
        }
        bool decided = false;
        if (const Wake wake = reasons_to_give_up(fresh, decided); decided) {
            return wake;
        }
        pollfd watched[2] = {{agent.connection.fd(), POLLIN | POLLRDHUP, 0}, {agent.channel, POLLIN, 0}};
        const int ready = libc().poll(watched, 2, agent.newly_accepted ? silence.left_ms() : -1);
        if (ready < 0) {
            return errno == EINTR ? Wake::interrupted : Wake::leave;
        }
        if (ready == 0) {
            (void)move_from_idle(ChildState::giving_up);
            return close_unless_asked();
        }
        if (watched[1].revents != 0 && !hear_supervisor()) {
            return Wake::leave;
        }
        told = agent.slot->state.load(std::memory_order_seq_cst) == ChildState::giving_up;
        again = false;
        if (!told && watched[0].revents != 0) {
            told = !move_from_idle(ChildState::reading);
            if (!told) {
                const Wake wake = look_or_wait(again, (watched[0].revents & ~POLLIN) != 0);
                if (!again) {
                    return wake;
                }
            }
        }
    }
    return give_up();
}

int next_connection(sockaddr* address, socklen_t* length) noexcept {
    const socklen_t room = length != nullptr ? *length : 0;
    for (;;) {
        if (length != nullptr) {
            *length = room;
        }
        agent.slot->keeps.store(Keeps::nothing, std::memory_order_seq_cst);
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
    if (connection.over) {
        return;
    }
    const std::uint64_t deadline =
        children::monotonic_ns() +
        agent.control->linger_timeout_ms.load(std::memory_order_relaxed) * ns_in_ms;
    bool resting = false;
    for (;;) {
        const Connection::Fill got = connection.fill();
        if (!connection.request_complete()) {
            (void)connection.admit();
        }
        if (connection.closing) {
            connection.discard_buffer();
        } else {
            connection.discard_available();  // what is behind it is the next request
        }
        const bool more = got == Connection::Fill::data;
        if (got == Connection::Fill::end || got == Connection::Fill::failed ||
            (!more && connection.request_complete())) {
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
        const std::uint64_t now = children::monotonic_ns();
        if (now >= deadline || mode() != RunMode::serve || waiting() != Waiting::nobody ||
            agent.slot->state.load(std::memory_order_seq_cst) != ChildState::idle) {
            (void)move_from_idle(ChildState::giving_up);
            return;
        }
        if (more) {
            continue;
        }
        pollfd watched[2] = {{connection.fd(), POLLIN, 0}, {agent.channel, POLLIN, 0}};
        libc().poll(watched, 2, static_cast<int>((deadline - now) / ns_in_ms) + 1);
        if (watched[1].revents != 0 && !hear_supervisor()) {
            return;
        }
    }
}

}  // namespace cede::agent
