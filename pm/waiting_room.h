// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "children/unique_fd.h"
#include "pm/handoff.h"
#include "pm/listener.h"
#include "pm/queue_policy.h"
#include "pm/refuser.h"
#include "pm/request_peek.h"
#include "pm/service_rate.h"
#include "protocol/detect.h"

namespace cede::pm {

// Where requests wait while children can't keep up: the handoff queue, with all that the supervisor can do
// for those in it because it has their connections. It takes in who has stood in a listen queue for long,
// drops those whose peers have gone, refuses who has waited too long, answers pings, and says who is next.
// docs/design/0012-the-waiting-room.md. While children keep up it does nothing.
class WaitingRoom {
  public:
    struct Settings {
        std::chrono::nanoseconds max_wait{0};  // 0: no limit
        Overload overload = Overload::fifo;
        bool run_abandoned = false;  // requests whose peers have gone
        std::string ping_path;       // empty: none
        bool reserve = false;        // children who take new connections only
    };
    struct Counts {
        std::uint64_t abandoned = 0;  // not run because their peers had gone
        std::uint64_t overdue = 0;    // refused because they had waited too long, or would have
        std::uint64_t pings = 0;
        std::uint64_t pulled = 0;  // taken in from a listen queue
    };
    // What becomes of connections that do not wait here.
    struct Exits {
        std::function<void(children::UniqueFd)> silent;                  // new, and nothing asked on it
        std::function<void(children::UniqueFd, std::uint64_t)> partial;  // since this time
        std::function<void(children::UniqueFd)> kept;                    // answered, and stays open
        std::function<void(children::UniqueFd)> ended;                   // answered, and does not
    };

    // All references must outlive it.
    WaitingRoom(Handoff& handoff, std::span<Listener> listeners, Exits exits);

    void set(Settings settings);
    void speak(protocol::Protocol protocol) noexcept { protocol_ = protocol; }

    // A connection with a request, since this time (CLOCK_MONOTONIC), which waits, unless it can be answered
    // or refused at once.
    void push(children::UniqueFd connection, std::uint64_t since_ns, bool pressure);

    struct Moment {
        std::uint64_t now_ns = 0;
        bool pressure = false;
        bool draining = false;
        bool in_vain = false;                    // by the latest look no child was free or idle for somebody
        std::chrono::nanoseconds listen_age{0};  // of who is first in a listen queue; 0: nobody
        // The same of who has so many in front; empty: nobody can say.
        std::function<std::chrono::nanoseconds(std::size_t)> age_behind;
        std::size_t places = 0;  // how many more connections may be held
        std::size_t children = 0;
        // Requests, by slot, each ServiceRate::interval.
        std::span<const std::uint64_t> answered{};
    };
    // At each check: moves nobody on to the children, which is the caller's.
    void tend(const Moment& moment);

    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  private:
    void pull(const Moment& moment);
    [[nodiscard]] bool accept_from(Listener& listener, std::size_t most, std::vector<Handoff::Ready>& into,
                                   const Moment& moment);
    [[nodiscard]] std::uint64_t waiting_since(const Listener& listener, int connection, const Moment& moment,
                                              std::size_t in_front) const;
    void drop_abandoned(std::vector<Handoff::Ready>& some);
    void drop_abandoned_waiters(std::uint64_t now_ns);
    void look_at(children::UniqueFd connection, std::uint64_t since_ns, bool is_new);
    void look_at_all();
    void refuse_overdue_waiters(const Moment& moment);
    void refuse(children::UniqueFd connection, std::uint64_t since_ns);
    void dispose(children::UniqueFd connection, Answered answered);

    Handoff& handoff_;
    std::span<Listener> listeners_;
    Exits exits_;
    Settings settings_;
    QueueRules rules_;
    protocol::Protocol protocol_ = protocol::Protocol::unknown;
    ServiceRate rate_;
    Counts counts_;
    std::uint64_t abandoned_due_ns_ = 0;
    std::uint64_t pull_due_ns_ = 0;  // after a shortage of descriptors
    std::uint64_t last_overdue_ns_ = 0;
    std::size_t first_listener_ = 0;  // whose turn it is
    std::size_t children_ = 0;
    bool pressure_ = false;
    bool in_vain_ = false;
};

}  // namespace cede::pm
