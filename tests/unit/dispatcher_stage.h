// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <vector>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "children/zygote_protocol.h"
#include "pm/dispatcher.h"
#include "tests/support/descriptors.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

namespace cede::tests {

using children::ChildState;
using children::GiveUpBy;
using children::Received;
using children::ScoreboardMap;
using children::Waiting;
using pm::Dispatcher;
using pm::Listener;
using pm::Poller;
using pm::Pool;

inline Listener listener_at(const SocketAddress& address, Listener::Kind kind) {
    Listener listener;
    listener.fd = listening_socket(address);
    ::fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
    listener.kind = kind;
    listener.backlog_granted = 128;
    return listener;
}

// Whether a thread of this process sleeps in the kernel (proc(5), stat).
inline bool sleeps(pid_t thread) {
    std::ifstream stat{"/proc/self/task/" + std::to_string(thread) + "/stat"};
    const std::string text{std::istreambuf_iterator<char>{stat}, {}};
    const auto end = text.rfind(") ");
    return end != std::string::npos && text[end + 2] == 'S';
}

// A dispatcher with everything real about it but the children, whose slots the test plays.
class Stage {
  public:
    explicit Stage(std::uint32_t children, bool unix_socket = false, Dispatcher::Room room = {100, 200},
                   GiveUpBy give_up_by = GiveUpBy::parking)
        : scoreboard_{*ScoreboardMap::create(children)}, pool_{children} {
        listeners_.push_back(
            unix_socket ? listener_at(unix_address(directory_.path("s")), Listener::Kind::unix_stream)
                        : listener_at(loopback4(), Listener::Kind::tcp4));
        for (std::uint32_t i = 0; i < children; ++i) {
            Ends channel = socket_pair();
            pool_.order(i, 1, std::move(channel.ours), {});
            pool_.at(i).phase = Pool::Phase::alive;
            pool_.at(i).pid = static_cast<pid_t>(1000 + i);
            channels_.push_back(std::move(channel.theirs));
            set(i, ChildState::busy);
        }
        dispatcher_ = std::make_unique<Dispatcher>(poller_, scoreboard_, pool_, listeners_, room, give_up_by);
        turn();
    }

    // One turn of the supervisor's loop. Returns the number of events.
    std::size_t turn() {
        const auto events = poller_.poll();
        for (const Poller::Event& event : events) {
            dispatcher_->on_event(event);
        }
        dispatcher_->settle();
        return events.size();
    }
    // As for a child that rings.
    void look() {
        dispatcher_->look_later();
        turn();
    }

    void set(std::uint32_t slot, ChildState state, std::uint64_t since = 0) {
        scoreboard_.slot(slot).since_ns = since;
        scoreboard_.slot(slot).state = state;
    }
    [[nodiscard]] ChildState state(std::uint32_t slot) { return scoreboard_.slot(slot).state; }
    [[nodiscard]] children::Slot& slot(std::uint32_t index) { return scoreboard_.slot(index); }
    [[nodiscard]] Waiting mark() { return scoreboard_.control().waiting; }
    [[nodiscard]] std::uint32_t listen_wait_ms() { return scoreboard_.control().listen_wait_ms; }
    [[nodiscard]] GiveUpBy give_up_by() { return scoreboard_.control().give_up_by; }
    [[nodiscard]] int count(ChildState wanted) {
        int found = 0;
        for (std::uint32_t i = 0; i < scoreboard_.slots(); ++i) {
            found += state(i) == wanted;
        }
        return found;
    }

    // Whether the child's doorbell was rung since the last call.
    [[nodiscard]] bool rung(std::uint32_t slot) {
        children::Doorbell bell;
        bool heard = false;
        while (children::receive_message(channels_[slot].get(), &bell, sizeof bell, false).kind ==
               Received::Kind::message) {
            heard = true;
        }
        return heard;
    }

    // Connects, and returns when the connection stands in the listen queue.
    UniqueFd arrive() {
        UniqueFd client = connected_to(address_of(listeners_[0].fd.get()));
        pollfd watched{client.get(), POLLOUT, 0};
        ::poll(&watched, 1, 5000);
        return client;
    }
    // Whether the kernel takes no connection more.
    [[nodiscard]] bool refused() {
        const SocketAddress address = address_of(listeners_[0].fd.get());
        const UniqueFd client{
            ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        return ::connect(client.get(), address.get(), address.length) != 0 && errno == EAGAIN;
    }
    // As a child would.
    UniqueFd accept() { return UniqueFd{::accept4(listeners_[0].fd.get(), nullptr, nullptr, SOCK_CLOEXEC)}; }
    UniqueFd take_handed() {
        children::Handoff message;
        return UniqueFd{
            children::receive_message(dispatcher_->handoff_receiver(), &message, sizeof message, false).fd};
    }

    // As a child parks, or has its peer close it.
    void park(UniqueFd connection, children::ChildSays how = children::ChildSays::park) {
        const children::ChildReport report{how};
        REQUIRE(children::send_message(dispatcher_->handoff_receiver(), &report, sizeof report,
                                       connection.get()));
    }
    // Under pressure nobody is believed to have gone until a few looks have found nobody.
    void calm_down() {
        for (int i = 0; i < 10 && mark() == Waiting::pressure; ++i) {
            look();
        }
        REQUIRE(mark() == Waiting::nobody);
    }

    Dispatcher& dispatcher() { return *dispatcher_; }
    Pool& pool() { return pool_; }
    Poller& poller() { return poller_; }
    Listener& listener() { return listeners_[0]; }

  private:
    TempDirectory directory_;
    Poller poller_;
    ScoreboardMap scoreboard_;
    Pool pool_;
    std::vector<UniqueFd> channels_;
    std::vector<Listener> listeners_;
    std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace cede::tests
