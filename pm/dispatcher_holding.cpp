// SPDX-License-Identifier: Apache-2.0
// The connections that the dispatcher holds: what becomes of them, and for how long.
#include <algorithm>
#include <poll.h>
#include <utility>

#include "children/clock.h"
#include "children/farewell.h"
#include "children/zygote_protocol.h"
#include "pm/dispatcher.h"
#include "pm/log.h"

namespace cede::pm {

using children::ChildSays;
using children::Waiting;

namespace {

constexpr std::chrono::milliseconds held_interval{250};
constexpr std::uint64_t farewell_ns = 1'000'000'000;

constexpr std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept {
    return static_cast<std::uint64_t>(time.count());
}

}  // namespace

Dispatcher::Holdings Dispatcher::holdings() const {
    return {lot_.list(), fresh_.list(), partial_.list(), leaving_.list(), lingering_.list(), handoff_.list()};
}

void Dispatcher::adopt(const Holdings& holdings) {
    for (const Held& held : holdings.queued) {
        handoff_.push(children::UniqueFd{held.fd}, held.since_ns);
    }
    for (const auto& [held, lot] :
         {std::pair{&holdings.parked, &lot_}, {&holdings.fresh, &fresh_}, {&holdings.leaving, &leaving_}}) {
        for (const Held& connection : *held) {
            if (children::UniqueFd asked =
                    lot->park(children::UniqueFd{connection.fd}, connection.since_ns)) {
                hand_over(std::move(asked));
            }
        }
    }
    for (const Held& held : holdings.partial) {
        partial_.add(children::UniqueFd{held.fd}, held.since_ns);
    }
    for (const Held& held : holdings.lingering) {
        lingering_.add(children::UniqueFd{held.fd}, held.since_ns);
    }
    wake_later();
}

// `arrives`: nobody has counted it yet as one who waits.
void Dispatcher::hand_over(children::UniqueFd connection, bool arrives) {
    const bool pressure = mark_ == Waiting::pressure;
    watch_.handed(arrives ? 1 : 0);
    waiting_room_.push(std::move(connection), children::monotonic_ns(), pressure);
    // Under pressure every child looks into the queue by itself as soon as it can.
    look_ = look_ || !pressure;
}

void Dispatcher::take_whole(PartialLot::Leaving leaving) {
    if (leaving.connection && leaving.as_it_is) {
        handoff_.push(std::move(leaving.connection), children::monotonic_ns(), true);
        look_ = true;
    } else if (leaving.connection) {
        hand_over(std::move(leaving.connection), false);
    }
}

void Dispatcher::park_all() {
    handoff_.receive_parked(parked_now_);
    // Of many that come at once some have their next request already, and need not be watched first.
    std::vector<pollfd> readable;
    if (parked_now_.size() > 1) {
        for (const Handoff::Parked& parked : parked_now_) {
            readable.push_back({parked.connection.get(), POLLIN | POLLRDHUP, 0});
        }
        if (poll(readable.data(), readable.size(), 0) <= 0) {
            readable.clear();
        }
    }
    for (std::size_t i = 0; i < parked_now_.size(); ++i) {
        Handoff::Parked& parked = parked_now_[i];
        if (parked.how == ChildSays::linger) {
            lingering_.add(std::move(parked.connection), children::monotonic_ns());
        } else if (parked.how == ChildSays::park_partial) {
            partial_.add(std::move(parked.connection), children::monotonic_ns());
        } else if (i < readable.size() && readable[i].revents == POLLIN) {
            hand_over(std::move(parked.connection));
        } else if (parked.how == ChildSays::see_off) {
            see_off(std::move(parked.connection));
        } else {
            keep_open(std::move(parked.connection), parked.fresh);
        }
    }
    parked_now_.clear();
    if (draining_) {
        close_silent();
    }
}

void Dispatcher::keep_open(children::UniqueFd connection, bool fresh) {
    if (children::UniqueFd asked = (fresh ? fresh_ : lot_).park(std::move(connection))) {
        hand_over(std::move(asked));
    }
    if (parked() > room_.parked && fresh_.size() > 0) {
        if (children::UniqueFd asked = fresh_.dismiss_longest()) {
            hand_over(std::move(asked));
        }
    }
}

void Dispatcher::keep_answered(children::UniqueFd connection) {
    if (draining_ || closing_for_room_) {
        part_with(std::move(connection));
    } else {
        keep_open(std::move(connection), false);
    }
}

std::size_t Dispatcher::held() const noexcept {
    return parked() + partial_.size() + leaving_.size() + lingering_.size() + handoff_.queued();
}

// Connections that wait for a child with a request can not be closed for room as silent ones can. Before they
// use up the descriptors, those with a part of one go, and then children close what they give up, after a
// last look, instead of parking it.
void Dispatcher::keep_within_room() {
    while (partial_.size() > 0 && held() >= room_.held) {
        partial_.close_oldest();
    }
    const bool full = held() >= (closing_for_room_ ? room_.held - room_.held / 8 : room_.held);
    if (full == closing_for_room_) {
        return;
    }
    closing_for_room_ = full;
    log(LogLevel::warning,
        "{} connections are parked or wait for a child; children {} what they give up (--max-parked)", held(),
        full ? "now close" : "park again");
    scoreboard_.control().give_up_by = full ? children::GiveUpBy::closing_even_new : give_up_by_;
}

void Dispatcher::set_room(Room room) noexcept {
    room_ = room;
    lot_.set_capacity(room.parked);
}

void Dispatcher::set_give_up_by(children::GiveUpBy give_up_by) noexcept {
    give_up_by_ = give_up_by;
    if (!closing_for_room_) {
        scoreboard_.control().give_up_by = give_up_by;
    }
}

void Dispatcher::set_patience(const Patience& patience) {
    waiting_room_.set(patience.waiting);
    partial_.set_limits(patience.slow);
    first_byte_ = patience.first_byte;
}

void Dispatcher::speak(protocol::Protocol protocol) noexcept {
    protocol_ = protocol;
    partial_.speak(protocol);
    waiting_room_.speak(protocol);
}

Dispatcher::Tally Dispatcher::tally() const noexcept {
    return {waiting_room_.counts(), partial_.counts(), lot_.peers_gone() + fresh_.peers_gone(),
            lot_.closed_for_room() + fresh_.closed_for_room(), silent_closed_};
}

// --- for how long ---

void Dispatcher::tend_held(std::uint64_t now_ns) {
    if (now_ns < held_due_ns_) {
        return;
    }
    held_due_ns_ = now_ns + nanoseconds(held_interval);
    close_overdue();
    close_silent_new(now_ns);
    lingering_.tend(now_ns);
    partial_.tend(now_ns);
    if (draining_ && now_ns - draining_since_ns_ > farewell_ns) {
        for (children::UniqueFd& whole : partial_.dissolve()) {
            hand_over(std::move(whole));
        }
    }
}

void Dispatcher::close_silent_new(std::uint64_t now_ns) {
    const std::uint64_t limit = nanoseconds(first_byte_);
    if (limit == 0 || now_ns <= limit) {
        return;
    }
    std::size_t closed = fresh_.size();
    while (children::UniqueFd asked = fresh_.dismiss_silent(now_ns - limit)) {
        --closed;
        hand_over(std::move(asked));
    }
    closed -= fresh_.size();
    if (closed > 0) {
        silent_closed_ += closed;
        log(LogLevel::info,
            "{} new connections were closed that were silent for {} ms (--first-byte-timeout)", closed,
            first_byte_.count());
    }
}

// When somebody may have been held too long; else no sooner than anything else has to be looked at.
std::chrono::milliseconds Dispatcher::holding_interval() const noexcept {
    const bool soon = leaving_.size() + lingering_.size() + partial_.size() > 0;
    const bool silent = fresh_.size() > 0 && first_byte_.count() > 0;
    return soon || (silent && first_byte_ < 8 * held_interval) ? held_interval : 4 * held_interval;
}

void Dispatcher::tend_waiting_room(std::uint64_t now_ns) {
    WaitingRoom::Moment moment;
    moment.now_ns = now_ns;
    moment.pressure = mark_ == Waiting::pressure;
    moment.draining = draining_;
    const auto now = std::chrono::steady_clock::now();
    moment.in_vain = in_vain_;
    moment.listen_age = watch_.head_age(now);
    moment.age_behind = [this, now](std::size_t in_front) { return watch_.age_behind(now, in_front); };
    // A part is left for what children park.
    const std::size_t places = room_.held - room_.held / 8;
    moment.places = places > held() ? places - held() : 0;
    moment.children = pool_.size();
    if (moment.pressure && now_ns >= answered_due_ns_) {
        answered_due_ns_ = now_ns + nanoseconds(ServiceRate::interval);
        answered_.resize(pool_.size());
        for (std::uint32_t slot = 0; slot < pool_.size(); ++slot) {
            answered_[slot] = scoreboard_.slot(slot).requests.load(std::memory_order_relaxed);
        }
        moment.answered = answered_;
    }
    const std::uint64_t pulled = waiting_room_.counts().pulled;
    waiting_room_.tend(moment);
    watch_.took(waiting_room_.counts().pulled - pulled);
}

// --- the end ---

bool Dispatcher::drained() const noexcept {
    return draining_ && !handoff_.backed_up() &&
           (leaving_.size() + lingering_.size() + partial_.size() == 0 ||
            children::monotonic_ns() - draining_since_ns_ > farewell_ns);
}

void Dispatcher::begin_drain() {
    draining_ = true;
    draining_since_ns_ = children::monotonic_ns();
    close_silent();
    look_ = true;
}

void Dispatcher::close_silent() {
    for (ParkingLot* const lot : {&lot_, &fresh_}) {
        while (children::UniqueFd asked = lot->dismiss_silent(children::monotonic_ns())) {
            hand_over(std::move(asked));
        }
    }
}

void Dispatcher::part_with(children::UniqueFd connection) {
    if (protocol_ == protocol::Protocol::lsapi && children::announce_close(connection.get())) {
        see_off(std::move(connection));
    }
}

void Dispatcher::see_off(children::UniqueFd connection) {
    // Comes back only if it can't be watched.
    if (children::UniqueFd unwatched = leaving_.park(std::move(connection))) {
        hand_over(std::move(unwatched));
    }
}

void Dispatcher::close_overdue() {
    while (children::UniqueFd asked = leaving_.dismiss_silent(children::monotonic_ns() - farewell_ns)) {
        hand_over(std::move(asked));
    }
}

}  // namespace cede::pm
