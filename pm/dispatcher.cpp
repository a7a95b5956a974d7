// SPDX-License-Identifier: Apache-2.0
#include "pm/dispatcher.h"

#include <algorithm>
#include <limits>
#include <poll.h>
#include <sys/epoll.h>
#include <utility>

#include "children/clock.h"
#include "children/fd_passing.h"
#include "children/zygote_protocol.h"
#include "pm/log.h"

namespace cede::pm {

using children::ChildState;
using children::Waiting;

namespace {

constexpr std::chrono::milliseconds quiet_interval{1000};
constexpr std::chrono::milliseconds attention_interval{100};
constexpr std::chrono::milliseconds pressure_interval{10};
constexpr std::chrono::milliseconds longest_rest{1};
constexpr unsigned quiet_checks_to_calm = 3;
constexpr unsigned most_looks_an_interval = 10;

}  // namespace

Dispatcher::Dispatcher(Poller& poller, children::ScoreboardMap& scoreboard, Pool& pool,
                       std::span<Listener> listeners, Room room, children::GiveUpBy give_up_by,
                       Handoff::Ends handoff)
    : poller_{poller},
      scoreboard_{scoreboard},
      pool_{pool},
      listeners_{listeners},
      watch_{scoreboard, pool, listeners.size()},
      leaving_{poller, std::numeric_limits<std::size_t>::max(), Poller::Kind::leaving},
      lot_{poller, room.parked, Poller::Kind::parked,
           [this](children::UniqueFd connection) { part_with(std::move(connection)); }},
      fresh_{poller, std::numeric_limits<std::size_t>::max(), Poller::Kind::fresh,
             [this](children::UniqueFd connection) { part_with(std::move(connection)); }},
      partial_{poller},
      lingering_{poller},
      handoff_{poller, pool.size(), std::move(handoff)},
      waiting_room_{handoff_,
                    listeners,
                    {[this](children::UniqueFd connection) { keep_open(std::move(connection), true); },
                     [this](children::UniqueFd connection, std::uint64_t since_ns) {
                         partial_.add(std::move(connection), since_ns);
                     },
                     [this](children::UniqueFd connection) { keep_answered(std::move(connection)); },
                     [this](children::UniqueFd connection) {
                         lingering_.add(std::move(connection), children::monotonic_ns());
                     }}},
      views_(pool.size()),
      room_{room},
      give_up_by_{give_up_by} {
    scoreboard_.control().give_up_by = give_up_by;
    for (const Listener& listener : listeners_) {
        depths_.push_back(QueueDepth::best_for(listener.fd.get()));
    }
    readings_.resize(depths_.size());
    scoreboard_.control().waiting = mark_;
    watch_listeners();
}

void Dispatcher::on_event(const Poller::Event& event) {
    children::UniqueFd asked;
    switch (event.tag.kind) {
        case Poller::Kind::parked:
            asked = lot_.on_event(event);
            break;
        case Poller::Kind::fresh:
            if (children::UniqueFd first = fresh_.on_event(event)) {
                hand_over(std::move(first), false);
            }
            break;
        case Poller::Kind::partial:
            take_whole(partial_.on_event(event));
            break;
        case Poller::Kind::leaving:
            asked = leaving_.on_event(event);
            break;
        case Poller::Kind::lingering:
            lingering_.on_event(event);
            break;
        case Poller::Kind::handoff:
            park_all();
            break;
        default:
            look_ = true;
            break;
    }
    if (asked) {
        hand_over(std::move(asked));
    }
}

void Dispatcher::settle() {
    handoff_.pump();
    keep_within_room();
    if (std::exchange(look_, false)) {
        look();
    }
}

bool Dispatcher::rest() noexcept {
    return mark_ == Waiting::pressure && !draining_ && handoff_.rest_until_low(longest_rest);
}

void Dispatcher::check() {
    const std::uint64_t now = children::monotonic_ns();
    tend_held(now);
    tend_waiting_room(now);
    handoff_.pump();
    wake_later();
    settle();
}

std::chrono::milliseconds Dispatcher::check_interval() const noexcept {
    switch (mark_) {
        case Waiting::pressure:
            return pressure_interval;
        case Waiting::attention:
            return attention_interval;
        case Waiting::nobody:
            break;
    }
    return std::min(quiet_interval, holding_interval());
}

// Attention costs a look for every waiter. Where they come this fast, pressure is cheaper.
bool Dispatcher::crowded() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (now - looks_since_ > pressure_interval) {
        looks_since_ = now;
        looks_ = 0;
    }
    return ++looks_ > most_looks_an_interval;
}

void Dispatcher::look() {
    const bool wake = std::exchange(wake_, false);
    const std::uint64_t waiting = listen_queue() + handoff_.waiting();
    const auto now = std::chrono::steady_clock::now();
    watch_.sample(readings_, now);
    if (waiting == 0) {
        in_vain_ = false;
        watch_.judged(false, 0, now);
        (void)carry_out({});
        return;
    }
    const bool rushed = crowded();
    if (mark_ == Waiting::nobody) {
        publish(Waiting::attention);
    }
    // A decision that children overtake is made anew, at the most once for each of them.
    for (std::uint32_t attempt = 0; attempt <= pool_.size(); ++attempt) {
        view_children();
        // Read behind the states: a waiter whom one of these children has just taken is none any more.
        const std::uint64_t queued = listen_queue();
        const std::uint64_t handed = handoff_.waiting();
        Decision decision = decide({views_, queued, handed});
        const bool in_vain = decision.mark == Waiting::pressure;
        if (rushed && decision.mark == Waiting::attention) {
            decision.mark = Waiting::pressure;
        }
        if (wake && attempt == 0) {
            wake_free(queued + handed);
        }
        if (carry_out(decision)) {
            in_vain_ = in_vain;
            watch_.judged(in_vain, queued + handed, now);
            return;
        }
    }
}

// Who has slept longest most likely knows nothing.
void Dispatcher::wake_free(std::uint64_t waiters) {
    std::vector<std::uint32_t> free;
    for (std::uint32_t slot = 0; slot < views_.size(); ++slot) {
        if (views_[slot].state == ChildState::free && views_[slot].reserved) {
            ring(pool_.at(slot));  // takes from the listen queues only: counts for none of the others
        } else if (views_[slot].state == ChildState::free) {
            free.push_back(slot);
        }
    }
    std::ranges::sort(free, {}, [this](std::uint32_t slot) { return views_[slot].since_ns; });
    for (std::size_t i = 0; i < free.size() && i < waiters; ++i) {
        ring(pool_.at(free[i]));
    }
}

std::uint64_t Dispatcher::listen_queue() noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < depths_.size(); ++i) {
        readings_[i] = depths_[i].read().value_or(QueueDepth::Reading{});
        sum += readings_[i].waiting;
    }
    longest_queue_ = std::max(longest_queue_, sum);
    return sum;
}

void Dispatcher::view_children() {
    views_.resize(pool_.size());
    for (std::uint32_t i = 0; i < pool_.size(); ++i) {
        views_[i] = {};
        if (pool_.at(i).phase == Pool::Phase::vacant) {
            continue;
        }
        const children::Slot& slot = scoreboard_.slot(i);
        const auto state = static_cast<std::uint32_t>(slot.state.load(std::memory_order_seq_cst));
        // The slot is the child's to write: a value that is none is a child of which nothing can be expected.
        views_[i].state = state <= children::last_child_state ? ChildState{state} : ChildState::busy;
        views_[i].since_ns = slot.since_ns.load(std::memory_order_relaxed);
        views_[i].reserved = pool_.at(i).reserved;
    }
}

bool Dispatcher::carry_out(const Decision& decision) {
    const bool raised = decision.mark == Waiting::pressure && mark_ != Waiting::pressure;
    publish(calm(decision.mark));
    bool complete = !raised;  // who became idle before the mark went up has not seen it: look once more
    for (const std::uint32_t slot : decision.give_up) {
        ChildState expected = ChildState::idle;
        if (scoreboard_.slot(slot).state.compare_exchange_strong(expected, ChildState::giving_up,
                                                                 std::memory_order_seq_cst)) {
            ++give_ups_asked_;
            log(LogLevel::debug, "{} gives its connection up", pool_.identity(slot));
            ring(pool_.at(slot));
        } else {
            complete = false;
        }
    }
    return complete;
}

// Pressure ends only when a few checks in a row have found children enough: while it lasts no child is idle,
// so nothing has to be decided, and a queue that is short for an instant is no reason to begin anew.
Waiting Dispatcher::calm(Waiting mark) noexcept {
    if (mark_ != Waiting::pressure || mark == Waiting::pressure) {
        quiet_checks_ = 0;
        return mark;
    }
    return ++quiet_checks_ < quiet_checks_to_calm ? mark_ : mark;
}

void Dispatcher::publish(Waiting mark) {
    if (mark == mark_) {
        return;
    }
    mark_ = mark;
    scoreboard_.control().waiting.store(mark, std::memory_order_seq_cst);
    // Under pressure each arrival would wake us for nothing: the children will speak up.
    if (mark == Waiting::pressure) {
        unwatch_listeners();
    } else {
        watch_listeners();
    }
}

void Dispatcher::watch_listeners() {
    if (watching_) {
        return;
    }
    watching_ = true;
    for (std::uint32_t i = 0; i < listeners_.size(); ++i) {
        // EPOLLEXCLUSIVE, behind the children: reached only if none of them sleeps (epoll_ctl(2)).
        if (!poller_.add(listeners_[i].fd.get(), EPOLLIN | EPOLLEXCLUSIVE | EPOLLET,
                         {Poller::Kind::listener, i, 0})) {
            log(LogLevel::error,
                "can't watch {}: out of memory or of epoll watches (fs.epoll.max_user_watches)",
                listeners_[i].name);
        }
    }
}

void Dispatcher::unwatch_listeners() noexcept {
    if (!watching_) {
        return;
    }
    watching_ = false;
    for (const Listener& listener : listeners_) {
        poller_.remove(listener.fd.get());
    }
}

void Dispatcher::child_is_watching() {
    if (watching_) {
        unwatch_listeners();
        watch_listeners();
    }
}

void Dispatcher::ring(const Pool::Child& child) noexcept {
    const children::Doorbell bell;
    if (child.channel) {
        (void)children::send_message(child.channel.get(), &bell, sizeof bell, -1);
    }
}

}  // namespace cede::pm
