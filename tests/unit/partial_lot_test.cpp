// SPDX-License-Identifier: Apache-2.0
#include "pm/partial_lot.h"

#include <chrono>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#include <doctest/doctest.h>

#include "children/clock.h"
#include "tests/support/descriptors.h"
#include "tests/support/records.h"
#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using namespace std::chrono_literals;
using cede::children::ChildSays;
using cede::children::monotonic_ns;
using cede::protocol::Protocol;

namespace {

// More is announced than comes: only its end makes it whole.
const std::string whole =
    request(cede::tests::pair("SCRIPT_NAME", "/a.php") + cede::tests::pair("CONTENT_LENGTH", "5"), "body");

struct Lot {
    Lot() { lot.speak(Protocol::fastcgi); }
    // What has left to be run.
    std::vector<UniqueFd> turn() {
        std::vector<UniqueFd> left;
        for (const Poller::Event& event : poller.poll()) {
            ++events;
            if (PartialLot::Leaving one = lot.on_event(event); one.connection) {
                left.push_back(std::move(one.connection));
                as_it_is = one.as_it_is;
            }
        }
        return left;
    }
    UniqueFd add(bool tcp = false) {
        Ends ends = tcp ? tcp_pair() : socket_pair(SOCK_STREAM);
        lot.add(std::move(ends.ours), monotonic_ns());
        return std::move(ends.theirs);
    }
    Poller poller;
    PartialLot lot{poller};
    int events = 0;
    bool as_it_is = false;  // the last that has left
};

}  // namespace

TEST_CASE("a request that comes byte by byte stays until it is whole, and no byte of it is read") {
    for (const bool tcp : {false, true}) {
        CAPTURE(tcp);
        Lot test;
        const UniqueFd client = test.add(tcp);
        for (const char byte : whole.substr(0, whole.size() - 1)) {
            REQUIRE(::send(client.get(), &byte, 1, 0) == 1);
            REQUIRE(test.turn().empty());
        }
        CHECK(test.lot.size() == 1);
        REQUIRE(::send(client.get(), &whole.back(), 1, 0) == 1);
        std::vector<UniqueFd> left;
        REQUIRE(soon([&] { return !(left = test.turn()).empty(); }));
        CHECK(test.lot.size() == 0);
        std::string seen;
        for (std::string some = text_in(left[0].get()); !some.empty(); some = text_in(left[0].get())) {
            seen += some;
        }
        CHECK(seen == whole);
    }
}

// unix(7): each piece that is not read is charged to its sender, who may send some 280 of them.
TEST_CASE("over a Unix socket a request in very many pieces leaves as it is, before its peer is blocked") {
    const std::string long_head =
        begin_record(true) + record(4, cede::tests::pair("A", std::string(1000, 'a'))) + record(4, "");
    for (const bool tcp : {false, true}) {
        CAPTURE(tcp);
        Lot test;
        const UniqueFd client = test.add(tcp);
        std::size_t sent = 0;
        for (bool gone = false; !gone && sent + 1 < long_head.size(); ++sent) {
            REQUIRE(::send(client.get(), &long_head[sent], 1, MSG_DONTWAIT) == 1);
            gone = !test.turn().empty();
        }
        CHECK((sent + 1 < long_head.size()) == !tcp);
        CHECK(test.as_it_is == !tcp);
    }
}

TEST_CASE("what is whole when it comes leaves at the first look") {
    Lot test;
    Ends ends = socket_pair(SOCK_STREAM);
    REQUIRE(send_text(ends.theirs.get(), whole));
    test.lot.add(std::move(ends.ours), monotonic_ns());
    CHECK(test.turn().size() == 1);
}

TEST_CASE("nothing happens while nothing comes") {
    Lot test;
    const UniqueFd client = test.add();
    REQUIRE(send_text(client.get(), whole.substr(0, 10)));
    (void)test.turn();
    const int before = test.events;
    for (int i = 0; i < 10; ++i) {
        (void)test.turn();
    }
    CHECK(test.events == before);
}

TEST_CASE("a large body leaves when enough of it is there, what is no request at once") {
    Lot test;
    const UniqueFd large = test.add();
    REQUIRE(send_text(large.get(), begin_record(true) +
                                       record(4, cede::tests::pair("CONTENT_LENGTH", "99999")) +
                                       record(4, "") + record(5, std::string(20'000, 'b'))));
    CHECK(test.turn().empty());
    REQUIRE(send_text(large.get(), record(5, std::string(20'000, 'b'))));
    CHECK(test.turn().size() == 1);
    const UniqueFd wrong = test.add();
    REQUIRE(send_text(wrong.get(), "GET / HTTP/1.1\r\n\r\n"));
    CHECK(test.turn().size() == 1);
}

TEST_CASE("a peer that goes before its request is whole is gone at once, and counted") {
    for (const bool tcp : {false, true}) {
        Lot test;
        UniqueFd client = test.add(tcp);
        REQUIRE(send_text(client.get(), whole.substr(0, 10)));
        (void)test.turn();
        ::shutdown(client.get(), SHUT_WR);
        CHECK(soon([&] {
            (void)test.turn();
            return test.lot.size() == 0;
        }));
        CHECK(at_end(client.get()));
        CHECK(test.lot.counts().gone == 1);
    }
}

TEST_CASE("a head has its time from its first byte on, a body from its latest") {
    Lot test;
    test.lot.set_limits({100ms, 300ms});
    const UniqueFd head = test.add();
    const UniqueFd body = test.add();
    const std::string sent = whole.substr(0, whole.size() - 10);
    REQUIRE(send_text(head.get(), whole.substr(0, 10)));
    REQUIRE(send_text(body.get(), sent));
    (void)test.turn();
    const std::uint64_t now = monotonic_ns();
    test.lot.tend(now + 50'000'000);
    CHECK(test.lot.size() == 2);
    test.lot.tend(now + 200'000'000);
    CHECK(test.lot.size() == 1);
    CHECK(test.lot.counts().heads_too_slow == 1);
    CHECK(at_end(head.get()));
    // A byte more, and it has all its time again.
    std::this_thread::sleep_for(60ms);
    REQUIRE(send_text(body.get(), whole.substr(sent.size(), 1)));
    (void)test.turn();
    test.lot.tend(now + 320'000'000);
    CHECK(test.lot.size() == 1);
    test.lot.tend(monotonic_ns() + 310'000'000);
    CHECK(test.lot.size() == 0);
    CHECK(test.lot.counts().bodies_too_slow == 1);
}

TEST_CASE("without limits nobody is too slow") {
    Lot test;
    const UniqueFd head = test.add();
    REQUIRE(send_text(head.get(), whole.substr(0, 10)));
    (void)test.turn();
    test.lot.tend(monotonic_ns() + 1'000'000'000'000);
    CHECK(test.lot.size() == 1);
}

TEST_CASE("the oldest makes room, and in the end those that are whole are served") {
    Lot test;
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 300; ++i) {
        clients.push_back(test.add());
        REQUIRE(send_text(clients.back().get(), whole.substr(0, 10)));
    }
    test.lot.close_oldest();
    CHECK(at_end(clients[0].get()));
    clients[1].reset();
    (void)test.turn();
    (void)test.turn();
    test.lot.close_oldest();
    CHECK(at_end(clients[2].get()));
    CHECK(silent(clients[3].get()));
    CHECK(test.lot.size() == 297);
    CHECK(test.lot.list().size() == 297);
    REQUIRE(send_text(clients[50].get(), whole.substr(10)));
    CHECK(test.lot.dissolve().size() == 1);
    CHECK(test.lot.size() == 0);
    CHECK(at_end(clients[3].get()));
}

TEST_CASE("children park parts of requests with the supervisor, beyond whose room the oldest are closed") {
    Stage stage{1, false, {100, 8}};
    stage.dispatcher().speak(Protocol::fastcgi);
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 20; ++i) {
        Ends ends = socket_pair(SOCK_STREAM);
        REQUIRE(send_text(ends.theirs.get(), whole.substr(0, 10)));
        stage.park(std::move(ends.ours), ChildSays::park_partial);
        stage.turn();
        clients.push_back(std::move(ends.theirs));
    }
    stage.turn();
    CHECK(stage.dispatcher().partial() == 7);
    CHECK(stage.give_up_by() == GiveUpBy::parking);
    CHECK(stage.mark() == Waiting::nobody);
    CHECK(at_end(clients[0].get()));
    REQUIRE(send_text(clients[19].get(), whole.substr(10)));
    stage.turn();
    CHECK(static_cast<bool>(stage.take_handed()));
    // In a drain they have a second.
    stage.dispatcher().begin_drain();
    CHECK_FALSE(stage.dispatcher().drained());
    CHECK(soon([&] {
        stage.dispatcher().check();
        return stage.dispatcher().drained() && stage.dispatcher().partial() == 0;
    }));
}

TEST_CASE("a new connection that stays silent is closed in time, one that has been served is not") {
    Stage stage{1};
    stage.dispatcher().set_patience({{}, {}, 300ms});
    Ends fresh = socket_pair(SOCK_STREAM);
    Ends kept = socket_pair(SOCK_STREAM);
    const cede::children::ChildReport report{ChildSays::park, {}, {}, 1, 0};
    REQUIRE(cede::children::send_message(stage.dispatcher().handoff_receiver(), &report, sizeof report,
                                         fresh.ours.get()));
    fresh.ours.reset();
    stage.park(std::move(kept.ours));
    stage.turn();
    CHECK(stage.dispatcher().parked() == 2);
    CHECK(stage.dispatcher().holdings().fresh.size() == 1);
    CHECK(stage.dispatcher().check_interval() < 1s);
    CHECK(soon([&] {
        stage.dispatcher().check();
        return stage.dispatcher().parked() == 1;
    }));
    CHECK(stage.dispatcher().tally().silent_closed == 1);
    CHECK(at_end(fresh.theirs.get()));
    CHECK(silent(kept.theirs.get()));
}

TEST_CASE("silent new connections make room before those that have been served") {
    Stage stage{1, false, {2, 100}};
    std::vector<UniqueFd> clients;
    for (const bool fresh : {false, true, false}) {
        Ends ends = socket_pair(SOCK_STREAM);
        const cede::children::ChildReport report{ChildSays::park, {}, {}, std::uint8_t{fresh}, 0};
        REQUIRE(cede::children::send_message(stage.dispatcher().handoff_receiver(), &report, sizeof report,
                                             ends.ours.get()));
        ends.ours.reset();
        stage.turn();
        clients.push_back(std::move(ends.theirs));
    }
    CHECK(silent(clients[0].get()));
    CHECK(at_end(clients[1].get()));
    CHECK(silent(clients[2].get()));
    CHECK(stage.dispatcher().parked() == 2);
}

TEST_CASE("what is held is taken over with all that is known of it") {
    Stage old{1};
    old.dispatcher().speak(Protocol::fastcgi);
    Ends partial = socket_pair(SOCK_STREAM);
    Ends fresh = socket_pair(SOCK_STREAM);
    REQUIRE(send_text(partial.theirs.get(), whole.substr(0, 10)));
    Stage next{1};
    next.dispatcher().speak(Protocol::fastcgi);
    Dispatcher::Holdings holdings;
    holdings.partial.push_back({partial.ours.release(), 5});
    holdings.fresh.push_back({fresh.ours.release(), 6});
    next.dispatcher().adopt(holdings);
    next.turn();
    const Dispatcher::Holdings held = next.dispatcher().holdings();
    REQUIRE(held.partial.size() == 1);
    REQUIRE(held.fresh.size() == 1);
    CHECK(held.partial[0].since_ns == 5);
    CHECK(held.fresh[0].since_ns == 6);
    REQUIRE(send_text(partial.theirs.get(), whole.substr(10)));
    next.turn();
    CHECK(static_cast<bool>(next.take_handed()));
}
