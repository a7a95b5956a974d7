// SPDX-License-Identifier: Apache-2.0
#include "pm/dispatcher.h"

#include <sys/epoll.h>
#include <utility>

#include "children/fd_passing.h"
#include "children/zygote_protocol.h"
#include "pm/log.h"

namespace cede::pm {

using children::ChildState;
using children::Waiting;

Dispatcher::Dispatcher(Poller& poller, children::ScoreboardMap& scoreboard, Pool& pool,
                       std::span<Listener> listeners, std::size_t max_parked)
    : poller_{poller},
      scoreboard_{scoreboard},
      pool_{pool},
      listeners_{listeners},
      lot_{poller, max_parked},
      handoff_{poller, pool.size()} {
    for (const Listener& listener : listeners_) {
        depths_.push_back(QueueDepth::best_for(listener.fd.get()));
    }
    watch_listeners();
}

void Dispatcher::park(children::UniqueFd connection) {
    if (children::UniqueFd asked = lot_.park(std::move(connection))) {
        handoff_.push(std::move(asked));
        look_ = true;
    }
    if (draining_) {
        close_silent();
    }
}

void Dispatcher::on_event(const Poller::Event& event) {
    switch (event.tag.kind) {
        case Poller::Kind::parked:
            if (children::UniqueFd connection = lot_.on_event(event)) {
                handoff_.push(std::move(connection));
                // Under pressure every child looks into the queue by itself as soon as it can.
                look_ = look_ || mark_ != Waiting::pressure;
            }
            break;
        case Poller::Kind::handoff:
            handoff_.pump();
            break;
        default:
            look_ = true;
            break;
    }
}

void Dispatcher::look_if_needed() {
    if (std::exchange(look_, false)) {
        look();
    }
}

void Dispatcher::check() {
    handoff_.pump();
    look();
}

void Dispatcher::look() {
    // A decision that children overtake is made anew, at the most once for each of them.
    for (std::uint32_t attempt = 0; attempt <= pool_.size(); ++attempt) {
        const std::uint64_t queued = listen_queue();
        const std::uint64_t handed = handoff_.waiting();
        if (queued + handed > 0 && mark_ == Waiting::nobody) {
            publish(Waiting::attention);
        }
        const std::vector<ChildView> children = view_children();
        if (carry_out(decide({children, queued, handed}))) {
            return;
        }
    }
}

std::uint64_t Dispatcher::listen_queue() noexcept {
    std::uint64_t sum = 0;
    for (QueueDepth& depth : depths_) {
        if (const auto reading = depth.read()) {
            sum += reading->waiting;
        }
    }
    return sum;
}

std::vector<ChildView> Dispatcher::view_children() noexcept {
    std::vector<ChildView> views(pool_.size());
    for (std::uint32_t i = 0; i < pool_.size(); ++i) {
        if (pool_.at(i).phase == Pool::Phase::vacant) {
            continue;
        }
        const children::Slot& slot = scoreboard_.slot(i);
        const auto state = static_cast<std::uint32_t>(slot.state.load(std::memory_order_seq_cst));
        // The slot is the child's to write: a value that is none is a child of which nothing can be expected.
        views[i].state = state <= children::last_child_state ? ChildState{state} : ChildState::busy;
        views[i].since_ns = slot.since_ns.load(std::memory_order_relaxed);
    }
    return views;
}

bool Dispatcher::carry_out(const Decision& decision) {
    const bool raised = decision.mark == Waiting::pressure && mark_ != Waiting::pressure;
    publish(decision.mark);
    bool complete = !raised;  // who became idle before the mark went up has not seen it: look once more
    for (const std::uint32_t slot : decision.give_up) {
        ChildState expected = ChildState::idle;
        if (scoreboard_.slot(slot).state.compare_exchange_strong(expected, ChildState::giving_up,
                                                                 std::memory_order_seq_cst)) {
            log(LogLevel::debug, "{} gives its connection up", pool_.identity(slot));
            ring(pool_.at(slot));
        } else {
            complete = false;
        }
    }
    return complete;
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

void Dispatcher::begin_drain() {
    draining_ = true;
    close_silent();
    look_ = true;
}

void Dispatcher::close_silent() {
    while (children::UniqueFd asked = lot_.close_silent()) {
        handoff_.push(std::move(asked));
        look_ = true;
    }
}

void Dispatcher::ring(const Pool::Child& child) noexcept {
    const children::Doorbell bell;
    if (child.channel) {
        (void)children::send_message(child.channel.get(), &bell, sizeof bell, -1);
    }
}

}  // namespace cede::pm
