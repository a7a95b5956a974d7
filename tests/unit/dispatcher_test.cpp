// SPDX-License-Identifier: Apache-2.0
#include "pm/dispatcher.h"

#include <atomic>
#include <memory>
#include <poll.h>
#include <sys/epoll.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "children/zygote_protocol.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using cede::children::ChildState;
using cede::children::Received;
using cede::children::ScoreboardMap;
using cede::children::UniqueFd;
using cede::children::Waiting;
using cede::tests::at_end;
using cede::tests::connected_to;
using cede::tests::Ends;
using cede::tests::send_text;
using cede::tests::silent;
using cede::tests::SocketAddress;
using cede::tests::soon;

namespace {

Listener listener_at(const SocketAddress& address, Listener::Kind kind) {
    Listener listener;
    listener.fd = cede::tests::listening_socket(address);
    ::fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
    listener.kind = kind;
    return listener;
}

// A dispatcher with everything real about it but the children, whose slots the test plays.
class Stage {
  public:
    explicit Stage(std::uint32_t children, bool unix_socket = false, std::size_t max_parked = 100)
        : scoreboard_{*ScoreboardMap::create(children)}, pool_{children} {
        listeners_.push_back(
            unix_socket ? listener_at(cede::tests::unix_address(directory_.path("s")), Listener::Kind::unix_stream)
                        : listener_at(cede::tests::loopback4(), Listener::Kind::tcp4));
        for (std::uint32_t i = 0; i < children; ++i) {
            Ends channel = cede::tests::socket_pair();
            pool_.order(i, 1, std::move(channel.ours), {});
            pool_.at(i).phase = Pool::Phase::alive;
            pool_.at(i).pid = static_cast<pid_t>(1000 + i);
            channels_.push_back(std::move(channel.theirs));
            set(i, ChildState::busy);
        }
        dispatcher_ = std::make_unique<Dispatcher>(poller_, scoreboard_, pool_, listeners_, max_parked);
        turn();
    }

    // One turn of the supervisor's loop. Returns the number of events.
    std::size_t turn() {
        const auto events = poller_.poll();
        for (const Poller::Event& event : events) {
            dispatcher_->on_event(event);
        }
        dispatcher_->look_if_needed();
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
    [[nodiscard]] cede::children::Slot& slot(std::uint32_t index) { return scoreboard_.slot(index); }
    [[nodiscard]] Waiting mark() { return scoreboard_.control().waiting; }
    [[nodiscard]] int count(ChildState wanted) {
        int found = 0;
        for (std::uint32_t i = 0; i < scoreboard_.slots(); ++i) {
            found += state(i) == wanted;
        }
        return found;
    }

    // Whether the child's doorbell was rung since the last call.
    [[nodiscard]] bool rung(std::uint32_t slot) {
        cede::children::Doorbell bell;
        bool heard = false;
        while (cede::children::receive_message(channels_[slot].get(), &bell, sizeof bell, false).kind ==
               Received::Kind::message) {
            heard = true;
        }
        return heard;
    }

    // Connects, and returns when the connection stands in the listen queue.
    UniqueFd arrive() {
        UniqueFd client = connected_to(cede::tests::address_of(listeners_[0].fd.get()));
        pollfd watched{client.get(), POLLOUT, 0};
        ::poll(&watched, 1, 5000);
        return client;
    }
    // As a child would.
    UniqueFd accept() { return UniqueFd{::accept4(listeners_[0].fd.get(), nullptr, nullptr, SOCK_CLOEXEC)}; }
    UniqueFd take_handed() {
        cede::children::Handoff message;
        return UniqueFd{cede::children::receive_message(dispatcher_->handoff_receiver(), &message,
                                                        sizeof message, false)
                            .fd};
    }

    Dispatcher& dispatcher() { return *dispatcher_; }
    Pool& pool() { return pool_; }
    Poller& poller() { return poller_; }
    Listener& listener() { return listeners_[0]; }

  private:
    cede::tests::TempDirectory directory_;
    Poller poller_;
    ScoreboardMap scoreboard_;
    Pool pool_;
    std::vector<UniqueFd> channels_;
    std::vector<Listener> listeners_;
    std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace

TEST_CASE("a queued connection makes the longest idle child give up, and rings for it") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Stage stage{3, unix_socket};
        stage.set(0, ChildState::idle, 30);
        stage.set(1, ChildState::idle, 10);
        stage.set(2, ChildState::idle, 20);
        const UniqueFd client = stage.arrive();
        CHECK(stage.turn() == 1);
        CHECK(stage.state(0) == ChildState::idle);
        CHECK(stage.state(1) == ChildState::giving_up);
        CHECK(stage.state(2) == ChildState::idle);
        CHECK(stage.rung(1));
        CHECK_FALSE(stage.rung(0));
        CHECK_FALSE(stage.rung(2));
        CHECK(stage.mark() == Waiting::attention);
        CHECK(stage.dispatcher().anybody_waits());

        // Looking again finds it provided for.
        stage.look();
        CHECK(stage.count(ChildState::giving_up) == 1);
        CHECK_FALSE(stage.rung(1));

        // A second waiter takes the next one.
        const UniqueFd second = stage.arrive();
        stage.turn();
        CHECK(stage.state(2) == ChildState::giving_up);
        CHECK(stage.state(0) == ChildState::idle);
    }
}

TEST_CASE("when the queue is empty again nobody waits") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.mark() == Waiting::attention);
    const UniqueFd served = stage.accept();
    REQUIRE(served);
    stage.set(0, ChildState::reading);
    stage.look();
    CHECK(stage.mark() == Waiting::nobody);
    CHECK_FALSE(stage.dispatcher().anybody_waits());
    // And the next arrival is noticed as the first was.
    stage.set(1, ChildState::idle, 1);
    const UniqueFd next = stage.arrive();
    CHECK(stage.turn() == 1);
    CHECK(stage.state(1) == ChildState::giving_up);
}

TEST_CASE("if nobody is idle the mark is pressure, and arrivals wake the supervisor no more") {
    Stage stage{2};
    const UniqueFd first = stage.arrive();
    CHECK(stage.turn() == 1);
    CHECK(stage.mark() == Waiting::pressure);
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() == 0);
    // A child that ends its answer rings. One takes the first, the other is expected to take the second.
    const UniqueFd served = stage.accept();
    stage.set(0, ChildState::reading);
    stage.set(1, ChildState::giving_up);
    stage.look();
    CHECK(stage.mark() == Waiting::attention);
    const UniqueFd also_served = stage.accept();
    stage.set(1, ChildState::reading);
    stage.look();
    CHECK(stage.mark() == Waiting::nobody);
}

TEST_CASE("who arrives while the mark goes from pressure to nobody is not overlooked") {
    Stage stage{1};
    const UniqueFd first = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    const UniqueFd served = stage.accept();
    stage.look();
    REQUIRE(stage.mark() == Waiting::nobody);
    stage.set(0, ChildState::idle, 1);
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() >= 1);
    CHECK(stage.state(0) == ChildState::giving_up);
}

TEST_CASE("idle and busy together: the idle one goes, the rest is pressure") {
    Stage stage{3};
    stage.set(1, ChildState::idle, 5);
    const UniqueFd clients[] = {stage.arrive(), stage.arrive(), stage.arrive()};
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.rung(1));
    CHECK(stage.mark() == Waiting::pressure);
}

TEST_CASE("a free child is left to take the waiter by itself") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 1);
    stage.set(1, ChildState::free, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.state(0) == ChildState::idle);
    CHECK(stage.mark() == Waiting::attention);
    CHECK_FALSE(stage.rung(0));
    CHECK_FALSE(stage.rung(1));
    // It took something else instead, and rang.
    stage.set(1, ChildState::busy);
    stage.look();
    CHECK(stage.state(0) == ChildState::giving_up);
}

TEST_CASE("states that are none, and times that can not be, harm nobody else") {
    Stage stage{6};
    for (const std::uint32_t garbage : {8U, 77U, 0x80000000U, 0xffffffffU}) {
        stage.set(0, ChildState{garbage}, 0);
        stage.set(1, ChildState{garbage - 1 > 7 ? garbage - 1 : 99U}, ~std::uint64_t{0});
        stage.set(2, ChildState::idle, ~std::uint64_t{0});
        stage.set(3, ChildState::idle, 0);
        stage.set(4, ChildState::exiting, 0);
        stage.set(5, ChildState::starting, 0);
        const UniqueFd client = stage.arrive();
        stage.look();
        CHECK(stage.state(3) == ChildState::giving_up);
        CHECK(stage.state(2) == ChildState::idle);
        CHECK(stage.state(0) == ChildState{garbage});
        CHECK(stage.mark() == Waiting::attention);
        const UniqueFd served = stage.accept();
        stage.set(3, ChildState::busy);
        stage.look();
        CHECK(stage.mark() == Waiting::nobody);
        CHECK(stage.rung(3));
        CHECK_FALSE(stage.rung(0));
    }
}

TEST_CASE("a slot whose child has gone is not believed") {
    Stage stage{2};
    stage.pool().vacate(0);
    stage.set(0, ChildState::free);
    stage.set(1, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.state(0) == ChildState::free);
}

TEST_CASE("a parked connection that becomes readable is handed off") {
    for (const bool tcp : {true, false}) {
        Stage stage{2};
        stage.set(0, ChildState::free);
        Ends ends = tcp ? cede::tests::tcp_pair() : cede::tests::socket_pair(SOCK_STREAM);
        stage.dispatcher().park(std::move(ends.ours));
        stage.turn();
        CHECK(stage.dispatcher().lot().size() == 1);
        CHECK_FALSE(static_cast<bool>(stage.take_handed()));
        CHECK(silent(ends.theirs.get()));
        REQUIRE(send_text(ends.theirs.get(), "request"));
        CHECK(soon([&] {
            stage.turn();
            return stage.dispatcher().lot().size() == 0;
        }));
        CHECK(stage.mark() == Waiting::attention);
        const UniqueFd taken = stage.take_handed();
        REQUIRE(taken);
        char text[16];
        CHECK(::recv(taken.get(), text, sizeof text, MSG_DONTWAIT) == 7);
        stage.look();
        CHECK(stage.mark() == Waiting::nobody);
    }
}

TEST_CASE("a parked connection with a request makes an idle child give up") {
    Stage stage{2};
    stage.set(0, ChildState::idle, 2);
    stage.set(1, ChildState::idle, 1);
    Ends ends = cede::tests::socket_pair(SOCK_STREAM);
    stage.dispatcher().park(std::move(ends.ours));
    stage.turn();
    CHECK(stage.count(ChildState::idle) == 2);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.rung(1));
}

TEST_CASE("waiters in both queues are added up") {
    Stage stage{3};
    for (std::uint32_t i = 0; i < 3; ++i) {
        stage.set(i, ChildState::idle, 10 - i);
    }
    Ends ends = cede::tests::socket_pair(SOCK_STREAM);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.dispatcher().park(std::move(ends.ours));
    const UniqueFd client = stage.arrive();
    stage.turn();
    stage.turn();
    CHECK(stage.state(2) == ChildState::giving_up);
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.state(0) == ChildState::idle);
}

TEST_CASE("a parked connection that makes room with a request on it is handed off, not closed") {
    Stage stage{1, false, 1};
    Ends first = cede::tests::socket_pair(SOCK_STREAM);
    Ends second = cede::tests::socket_pair(SOCK_STREAM);
    stage.dispatcher().park(std::move(first.ours));
    REQUIRE(send_text(first.theirs.get(), "request"));
    stage.dispatcher().park(std::move(second.ours));
    stage.turn();
    CHECK(stage.mark() == Waiting::pressure);
    CHECK(static_cast<bool>(stage.take_handed()));
    CHECK(stage.dispatcher().lot().size() == 1);
}

TEST_CASE("a hundred parked requests reach one child in order, as fast as it takes them") {
    Stage stage{1};
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 100; ++i) {
        Ends ends = cede::tests::socket_pair(SOCK_STREAM);
        stage.dispatcher().park(std::move(ends.ours));
        peers.push_back(std::move(ends.theirs));
    }
    stage.turn();
    for (int i = 0; i < 100; ++i) {
        const char byte = static_cast<char>(i);
        REQUIRE(::send(peers[static_cast<std::size_t>(i)].get(), &byte, 1, 0) == 1);
    }
    for (int i = 0; i < 100; ++i) {
        UniqueFd taken;
        REQUIRE(soon([&] {
            stage.turn();
            return static_cast<bool>(taken = stage.take_handed());
        }));
        char byte = -1;
        REQUIRE(::recv(taken.get(), &byte, 1, MSG_DONTWAIT) == 1);
        REQUIRE(byte == static_cast<char>(i));
    }
    stage.look();
    CHECK(stage.mark() == Waiting::nobody);
}

TEST_CASE("a child that moves while it is being told is passed over for another one, never for two") {
    constexpr int rounds = 300;
    Stage stage{6};
    for (int round = 0; round < rounds; ++round) {
        for (std::uint32_t i = 1; i < 6; ++i) {
            stage.set(i, ChildState::idle, 100 + i);
        }
        stage.set(0, ChildState::idle, 1);
        std::atomic<bool> done{false};
        // The longest idle child gets a request all the time, and answers it at once.
        std::thread child{[&] {
            auto& state = stage.slot(0).state;
            while (!done) {
                ChildState expected = ChildState::idle;
                if (!state.compare_exchange_strong(expected, ChildState::reading)) {
                    return;
                }
                state = ChildState::idle;
            }
        }};
        const UniqueFd client = stage.arrive();
        stage.look();
        done = true;
        child.join();
        REQUIRE(stage.count(ChildState::giving_up) == 1);
        REQUIRE(stage.mark() == Waiting::attention);
        const UniqueFd served = stage.accept();
        REQUIRE(served);
        for (std::uint32_t i = 0; i < 6; ++i) {
            stage.set(i, ChildState::busy);
            (void)stage.rung(i);
        }
        stage.look();
        REQUIRE(stage.mark() == Waiting::nobody);
    }
}

TEST_CASE("a child that becomes idle when everybody seems busy is found, by itself or by the supervisor") {
    constexpr int rounds = 300;
    Stage stage{1};
    for (int round = 0; round < rounds; ++round) {
        stage.set(0, ChildState::busy);
        std::atomic<bool> gave_up_by_itself{false};
        std::atomic<bool> go{false};
        std::thread child{[&] {
            while (!go) {
            }
            // As the agent does: the state first, then the mark.
            stage.slot(0).state = ChildState::idle;
            gave_up_by_itself = stage.mark() == Waiting::pressure;
        }};
        const UniqueFd client = stage.arrive();
        go = true;
        stage.look();
        child.join();
        REQUIRE((gave_up_by_itself || stage.state(0) == ChildState::giving_up));
        const UniqueFd served = stage.accept();
        stage.look();
        REQUIRE(stage.mark() == Waiting::nobody);
    }
}

TEST_CASE("an arrival that a sleeping child takes does not wake the supervisor") {
    Stage stage{1};
    stage.set(0, ChildState::free);
    Poller child;
    REQUIRE(child.add(stage.listener().fd.get(), EPOLLIN | EPOLLEXCLUSIVE, {}));
    stage.dispatcher().child_is_watching();
    stage.turn();
    for (int i = 0; i < 20; ++i) {
        epoll_event event{};
        std::atomic<int> woken{-1};
        std::thread sleeper{[&] { woken = ::epoll_wait(child.fd(), &event, 1, 5000); }};
        // Asleep in epoll_wait(2): only then is the wake-up its own.
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        const UniqueFd client = stage.arrive();
        sleeper.join();
        CHECK(woken == 1);
        CHECK(stage.poller().poll().empty());
        const UniqueFd served = stage.accept();
        CHECK(served);
    }
    // With the child at work the next one comes to us.
    const UniqueFd client = stage.arrive();
    CHECK(stage.turn() == 1);
}

TEST_CASE("a check finds what no event has told") {
    Stage stage{1};
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    stage.set(0, ChildState::idle, 1);
    stage.dispatcher().check();
    CHECK(stage.state(0) == ChildState::giving_up);
    CHECK(stage.mark() == Waiting::attention);
}

TEST_CASE("draining closes parked connections without a request and serves the others") {
    Stage stage{1};
    Ends quiet = cede::tests::socket_pair(SOCK_STREAM);
    Ends asked = cede::tests::socket_pair(SOCK_STREAM);
    Ends late = cede::tests::socket_pair(SOCK_STREAM);
    stage.dispatcher().park(std::move(quiet.ours));
    stage.dispatcher().park(std::move(asked.ours));
    CHECK_FALSE(stage.dispatcher().drained());
    REQUIRE(send_text(asked.theirs.get(), "request"));
    stage.dispatcher().begin_drain();
    stage.turn();
    CHECK(at_end(quiet.theirs.get()));
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK(stage.dispatcher().drained());
    CHECK(static_cast<bool>(stage.take_handed()));
    // Who is parked from now on is not kept, either.
    stage.dispatcher().park(std::move(late.ours));
    CHECK(at_end(late.theirs.get()));
}

TEST_CASE("a doorbell without a channel rings nobody") {
    Dispatcher::ring(Pool::Child{});
}
