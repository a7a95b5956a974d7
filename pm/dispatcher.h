// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "children/scoreboard_map.h"
#include "children/unique_fd.h"
#include "pm/handoff.h"
#include "pm/linger_lot.h"
#include "pm/listener.h"
#include "pm/parking_lot.h"
#include "pm/partial_lot.h"
#include "pm/policy.h"
#include "pm/poller.h"
#include "pm/pool.h"
#include "pm/queue_depth.h"
#include "pm/queue_watch.h"
#include "pm/waiting_room.h"
#include "protocol/detect.h"

namespace cede::pm {

// Brings waiting connections and children together: knows who waits (listen queues, handoff queue), asks the
// policy who is to give up, and tells them. Touches nothing while children are free.
//
// "No request waits while a child is idle or free" rests on this: the mark Control::waiting is published
// before the slots are read, and a child publishes its state before it reads the mark. One of the two sees
// the other.
class Dispatcher {
  public:
    struct Room {
        // Silent connections. Beyond it one is closed: a new one that has never asked anything, if there is
        // one, and the one that has been silent for longest.
        std::size_t parked = 0;
        std::size_t held = 0;  // with those that have a request, or a part of one
    };
    struct Patience {
        WaitingRoom::Settings waiting;
        PartialLot::Limits slow;
        std::chrono::milliseconds first_byte{0};  // of a new connection; 0: no limit
    };

    // All references must outlive it. Throws std::system_error.
    Dispatcher(Poller& poller, children::ScoreboardMap& scoreboard, Pool& pool, std::span<Listener> listeners,
               Room room, children::GiveUpBy give_up_by = children::GiveUpBy::parking,
               Handoff::Ends handoff = {});

    // The connections that are held, by what they are held for.
    struct Holdings {
        std::vector<Held> parked;
        std::vector<Held> fresh;      // the same, but nothing has ever been asked on them
        std::vector<Held> partial;    // with a part of a request
        std::vector<Held> leaving;    // their peers have been told to close them
        std::vector<Held> lingering;  // shut down
        std::vector<Held> queued;     // with a request
    };
    [[nodiscard]] Holdings holdings() const;
    // Takes them over, from another dispatcher that is no more. Before any event.
    void adopt(const Holdings& holdings);

    void on_event(const Poller::Event& event);
    // After each batch of events: moves on what they brought, and looks who waits, unless nothing has
    // happened that could have changed it.
    void settle();
    // Under pressure, with enough connections ahead of the children, the supervisor is not needed for a
    // while: what comes meanwhile is then done at one go. True if it rested.
    [[nodiscard]] bool rest() noexcept;
    void look_later() noexcept { look_ = true; }
    // Besides, whoever is free may have to be woken: a wake-up of the kernel's came to nothing.
    void wake_later() noexcept { look_ = wake_ = true; }
    // A child has begun to watch the listeners: the supervisor's own watch must come behind it again.
    void child_is_watching();
    // How many connections wait for a child: asks the kernel.
    [[nodiscard]] std::uint64_t waiting() noexcept { return listen_queue() + handoff_.waiting(); }
    [[nodiscard]] bool anybody_waits() const noexcept { return mark_ != children::Waiting::nobody; }
    // To be called at this interval: finds what an event should have told.
    void check();
    [[nodiscard]] std::chrono::milliseconds check_interval() const noexcept;

    // From now on, as in the constructor.
    void set_room(Room room) noexcept;
    void set_give_up_by(children::GiveUpBy give_up_by) noexcept;
    void set_patience(const Patience& patience);

    // What the children speak. LSAPI has a word for the peer to close a connection, and it gets a second to
    // do so: what it sent before it read that is served.
    void speak(protocol::Protocol protocol) noexcept;

    // From now on new and parked connections are not kept open.
    void begin_drain();
    // Nothing more has to be moved from here to the children, and those who were told to close their
    // connections have done so or had the time for it. Under load there may always be some who were told
    // later.
    [[nodiscard]] bool drained() const noexcept;

    [[nodiscard]] const ParkingLot& lot() const noexcept { return lot_; }
    [[nodiscard]] std::size_t parked() const noexcept { return lot_.size() + fresh_.size(); }
    [[nodiscard]] std::size_t partial() const noexcept { return partial_.size(); }
    // What has happened to those who were held here.
    struct Tally {
        WaitingRoom::Counts waiting;
        PartialLot::Counts partial;
        std::uint64_t peers_gone = 0;  // of silent connections
        std::uint64_t closed_for_room = 0;
        std::uint64_t silent_closed = 0;  // new ones, after Patience::first_byte
    };
    [[nodiscard]] Tally tally() const noexcept;
    // For whoever wants to know how things are. Of each listener, in their order: asks the kernel.
    [[nodiscard]] const std::vector<QueueDepth::Reading>& queues() noexcept {
        (void)listen_queue();
        return readings_;
    }
    // The most that have been seen in all listen queues together.
    [[nodiscard]] std::uint64_t longest_queue() const noexcept { return longest_queue_; }
    [[nodiscard]] std::size_t handed_over() const noexcept { return handoff_.waiting(); }
    [[nodiscard]] std::size_t being_closed() const noexcept { return leaving_.size() + lingering_.size(); }
    [[nodiscard]] children::Waiting mark() const noexcept { return mark_; }
    [[nodiscard]] QueueWatch& watch() noexcept { return watch_; }
    [[nodiscard]] const QueueWatch& watch() const noexcept { return watch_; }
    // How many children have been asked to give their connection up.
    [[nodiscard]] std::uint64_t give_ups_asked() const noexcept { return give_ups_asked_; }
    [[nodiscard]] int handoff_receiver() const noexcept { return handoff_.receiver(); }
    [[nodiscard]] int handoff_sender() const noexcept { return handoff_.sender(); }

    // Wakes a child, which then finds in the scoreboard what is wanted.
    static void ring(const Pool::Child& child) noexcept;

  private:
    // What is held (dispatcher_holding.cpp).
    void park_all();
    void keep_open(children::UniqueFd connection, bool fresh);
    void keep_answered(children::UniqueFd connection);
    [[nodiscard]] std::size_t held() const noexcept;
    void keep_within_room();
    void tend_held(std::uint64_t now_ns);
    void close_silent_new(std::uint64_t now_ns);
    [[nodiscard]] std::chrono::milliseconds holding_interval() const noexcept;
    void tend_waiting_room(std::uint64_t now_ns);
    void hand_over(children::UniqueFd connection, bool arrives = true);
    void take_whole(PartialLot::Leaving leaving);
    [[nodiscard]] bool crowded() noexcept;
    void look();
    [[nodiscard]] std::uint64_t listen_queue() noexcept;
    void wake_free(std::uint64_t waiters);
    void view_children();
    // Publishes the decision. False if a child has moved meanwhile, so that it must be made anew.
    [[nodiscard]] bool carry_out(const Decision& decision);
    [[nodiscard]] children::Waiting calm(children::Waiting mark) noexcept;
    void publish(children::Waiting mark);
    void watch_listeners();
    void unwatch_listeners() noexcept;
    void close_silent();
    void part_with(children::UniqueFd connection);
    void see_off(children::UniqueFd connection);
    void close_overdue();

    Poller& poller_;
    children::ScoreboardMap& scoreboard_;
    Pool& pool_;
    std::span<Listener> listeners_;
    std::vector<QueueDepth> depths_;
    std::vector<QueueDepth::Reading> readings_;  // the latest, of each
    QueueWatch watch_;
    ParkingLot leaving_;  // their peers have been told to close them
    ParkingLot lot_;
    ParkingLot fresh_;  // nothing has ever been asked on them
    PartialLot partial_;
    LingerLot lingering_;
    Handoff handoff_;
    WaitingRoom waiting_room_;
    std::vector<Handoff::Parked> parked_now_;  // being received; empty between events
    std::vector<ChildView> views_;             // by slot, as last seen
    protocol::Protocol protocol_ = protocol::Protocol::unknown;
    children::Waiting mark_ = children::Waiting::nobody;
    unsigned quiet_checks_ = 0;
    std::uint64_t give_ups_asked_ = 0;
    std::uint64_t longest_queue_ = 0;
    unsigned looks_ = 0;  // since looks_since_
    std::chrono::steady_clock::time_point looks_since_{};
    Room room_;
    std::chrono::milliseconds first_byte_{0};
    std::uint64_t silent_closed_ = 0;
    std::uint64_t held_due_ns_ = 0;        // when to look next who has been held too long
    std::vector<std::uint64_t> answered_;  // requests, by slot, as last asked
    std::uint64_t answered_due_ns_ = 0;
    children::GiveUpBy give_up_by_;
    bool closing_for_room_ = false;
    bool in_vain_ = false;  // by the latest look no child was free or idle for somebody
    bool watching_ = false;
    bool look_ = false;
    bool wake_ = false;
    bool draining_ = false;
    std::uint64_t draining_since_ns_ = 0;
};

}  // namespace cede::pm
