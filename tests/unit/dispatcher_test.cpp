// SPDX-License-Identifier: Apache-2.0
#include "pm/dispatcher.h"

#include <atomic>
#include <chrono>
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
        listeners_.push_back(unix_socket ? listener_at(cede::tests::unix_address(directory_.path("s")),
                                                       Listener::Kind::unix_stream)
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
        return UniqueFd{
            cede::children::receive_message(dispatcher_->handoff_receiver(), &message, sizeof message, false)
                .fd};
    }

    // As a child parks.
    void park(UniqueFd connection) {
        const cede::children::ChildReport report{cede::children::ChildSays::park, 0};
        REQUIRE(cede::children::send_message(dispatcher_->handoff_receiver(), &report, sizeof report,
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
    CHECK(stage.dispatcher().anybody_waits());
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() == 0);
}

TEST_CASE("pressure lasts while anybody waits, and ends when a few looks have found nobody") {
    Stage stage{2};
    const UniqueFd first = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    // One that is free now would be expected to take it; the mark stays all the same.
    stage.set(0, ChildState::free);
    for (int i = 0; i < 10; ++i) {
        stage.look();
        CHECK(stage.mark() == Waiting::pressure);
    }
    UniqueFd served = stage.accept();
    stage.look();
    CHECK(stage.mark() == Waiting::pressure);
    // Somebody comes in between: the counting begins anew.
    stage.look();
    const UniqueFd second = stage.arrive();
    stage.look();
    served = stage.accept();
    stage.look();
    CHECK(stage.mark() == Waiting::pressure);
    stage.calm_down();
    CHECK_FALSE(stage.dispatcher().anybody_waits());
}

TEST_CASE("checks are frequent under pressure, rare at attention, and there is always one") {
    Stage stage{1};
    stage.set(0, ChildState::idle, 1);
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::attention);
    const auto attention = stage.dispatcher().check_interval();
    stage.set(0, ChildState::busy);
    stage.look();
    REQUIRE(stage.mark() == Waiting::pressure);
    CHECK(stage.dispatcher().check_interval() < attention);
    CHECK(attention <= std::chrono::milliseconds{100});
    CHECK(stage.dispatcher().check_interval().count() > 0);
}

TEST_CASE("who arrives while the mark goes from pressure to nobody is not overlooked") {
    Stage stage{1};
    const UniqueFd first = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    const UniqueFd served = stage.accept();
    stage.calm_down();
    stage.set(0, ChildState::idle, 1);
    const UniqueFd second = stage.arrive();
    CHECK(stage.turn() >= 1);
    CHECK(stage.state(0) == ChildState::giving_up);
}

TEST_CASE("the supervisor rests under pressure only, while children have enough to take, and for a moment") {
    Stage stage{4};
    CHECK_FALSE(stage.dispatcher().rest());
    const UniqueFd client = stage.arrive();
    stage.turn();
    REQUIRE(stage.mark() == Waiting::pressure);
    CHECK_FALSE(stage.dispatcher().rest());
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 20; ++i) {
        Ends ends = cede::tests::socket_pair(SOCK_STREAM);
        REQUIRE(send_text(ends.theirs.get(), "request"));
        stage.park(std::move(ends.ours));
        peers.push_back(std::move(ends.theirs));
        stage.turn();
    }
    stage.turn();
    const auto start = std::chrono::steady_clock::now();
    CHECK(stage.dispatcher().rest());
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{1});
    // Once few are left there is no rest, for somebody has to bring more.
    for (int i = 0; i < 20; ++i) {
        (void)stage.take_handed();
    }
    CHECK_FALSE(stage.dispatcher().rest());
    stage.dispatcher().begin_drain();
    CHECK_FALSE(stage.dispatcher().rest());
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
        stage.park(std::move(ends.ours));
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
    stage.park(std::move(ends.ours));
    stage.turn();
    CHECK(stage.count(ChildState::idle) == 2);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.turn();
    CHECK(stage.state(1) == ChildState::giving_up);
    CHECK(stage.rung(1));
}

TEST_CASE(
    "of many that are parked at once, those that ask already are handed off, those that are silent stay") {
    Stage stage{2};
    std::vector<UniqueFd> peers;
    for (int i = 0; i < 60; ++i) {
        Ends ends = i % 2 == 0 ? cede::tests::tcp_pair() : cede::tests::socket_pair(SOCK_STREAM);
        if (i % 3 == 0) {
            REQUIRE(send_text(ends.theirs.get(), "request"));
        }
        if (i % 3 == 1) {
            ends.theirs.reset();
        }
        stage.park(std::move(ends.ours));
        peers.push_back(std::move(ends.theirs));
    }
    int handed = 0;
    CHECK(soon([&] {
        stage.turn();
        while (const UniqueFd fd = stage.take_handed()) {
            char text[8];
            handed += ::recv(fd.get(), text, sizeof text, MSG_DONTWAIT) == 7;
        }
        return handed == 20 && stage.dispatcher().lot().size() == 20;
    }));
    CHECK(stage.dispatcher().lot().peers_gone() == 20);
    for (std::size_t i = 2; i < 60; i += 3) {
        CHECK(silent(peers[i].get()));
    }
}

TEST_CASE("what is sent in the place of a parked connection is dropped") {
    Stage stage{1};
    const int socket = stage.dispatcher().handoff_receiver();
    const cede::children::ChildReport report{cede::children::ChildSays::park, 0};
    Ends ends = cede::tests::socket_pair(SOCK_STREAM);
    REQUIRE(cede::children::send_message(socket, &report, sizeof report, -1));
    REQUIRE(cede::children::send_message(socket, "x", 1, ends.ours.get()));
    REQUIRE(cede::children::send_message(socket, std::string(500, 'x').data(), 500, ends.ours.get()));
    ends.ours.reset();
    stage.turn();
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK(at_end(ends.theirs.get()));
    // What is no socket can not be watched by everybody, and must not stop the others.
    const Ends pipe = cede::tests::pipe_pair();
    const UniqueFd file{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    const UniqueFd folder{::open("/", O_RDONLY | O_CLOEXEC)};
    for (const int fd : {pipe.ours.get(), file.get(), folder.get()}) {
        REQUIRE(cede::children::send_message(socket, &report, sizeof report, fd));
    }
    Ends good = cede::tests::socket_pair(SOCK_STREAM);
    stage.park(std::move(good.ours));
    stage.turn();
    REQUIRE(send_text(good.theirs.get(), "request"));
    bool found = false;
    CHECK(soon([&] {
        stage.turn();
        while (const UniqueFd fd = stage.take_handed()) {
            char text[8];
            found = found || ::recv(fd.get(), text, sizeof text, MSG_DONTWAIT) == 7;
        }
        return found;
    }));
}

TEST_CASE("waiters in both queues are added up") {
    Stage stage{3};
    for (std::uint32_t i = 0; i < 3; ++i) {
        stage.set(i, ChildState::idle, 10 - i);
    }
    Ends ends = cede::tests::socket_pair(SOCK_STREAM);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    stage.park(std::move(ends.ours));
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
    stage.park(std::move(first.ours));
    stage.turn();
    REQUIRE(send_text(first.theirs.get(), "request"));
    stage.park(std::move(second.ours));
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
        stage.park(std::move(ends.ours));
        stage.turn();
        peers.push_back(std::move(ends.theirs));
    }
    CHECK(stage.dispatcher().lot().size() == 100);
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
    stage.calm_down();
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
        stage.calm_down();
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
    CHECK(stage.dispatcher().anybody_waits());
}

TEST_CASE("draining closes parked connections without a request and serves the others") {
    Stage stage{1};
    Ends quiet = cede::tests::socket_pair(SOCK_STREAM);
    Ends asked = cede::tests::socket_pair(SOCK_STREAM);
    Ends late = cede::tests::socket_pair(SOCK_STREAM);
    stage.park(std::move(quiet.ours));
    stage.park(std::move(asked.ours));
    stage.turn();
    CHECK(stage.dispatcher().lot().size() == 2);
    CHECK_FALSE(stage.dispatcher().drained());
    REQUIRE(send_text(asked.theirs.get(), "request"));
    stage.dispatcher().begin_drain();
    stage.turn();
    CHECK(at_end(quiet.theirs.get()));
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK(stage.dispatcher().drained());
    CHECK(static_cast<bool>(stage.take_handed()));
    // Who is parked from now on is not kept, either.
    stage.park(std::move(late.ours));
    stage.turn();
    CHECK(at_end(late.theirs.get()));
}

TEST_CASE("a doorbell without a channel rings nobody") {
    Dispatcher::ring(Pool::Child{});
}
