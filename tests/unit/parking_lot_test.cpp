// SPDX-License-Identifier: Apache-2.0
#include "pm/parking_lot.h"

#include <algorithm>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <vector>

#include <doctest/doctest.h>

#include "children/clock.h"
#include "tests/support/descriptors.h"

using namespace cede::pm;
using cede::children::UniqueFd;
using cede::tests::at_end;
using cede::tests::descriptors_of;
using cede::tests::Ends;
using cede::tests::send_text;
using cede::tests::silent;
using cede::tests::socket_pair;
using cede::tests::soon;
using cede::tests::tcp_pair;
using cede::tests::text_in;

namespace {

Ends connection(bool tcp) {
    return tcp ? tcp_pair() : socket_pair(SOCK_STREAM);
}

// Everything that comes out of the lot in one turn of the loop.
std::vector<UniqueFd> turn(Poller& poller, ParkingLot& lot) {
    std::vector<UniqueFd> out;
    for (const Poller::Event& event : poller.poll()) {
        if (UniqueFd fd = lot.on_event(event)) {
            out.push_back(std::move(fd));
        }
    }
    return out;
}

// Turns until something has come out.
std::vector<UniqueFd> wait_for_any(Poller& poller, ParkingLot& lot) {
    std::vector<UniqueFd> out;
    CHECK(soon([&] { return !(out = turn(poller, lot)).empty(); }));
    return out;
}

void park(ParkingLot& lot, UniqueFd fd) {
    REQUIRE_FALSE(lot.park(std::move(fd)));
}

}  // namespace

TEST_CASE("a parked connection stays open until it becomes readable, and no byte of it is read") {
    for (const bool tcp : {true, false}) {
        CAPTURE(tcp);
        Poller poller;
        ParkingLot lot{poller, 10};
        Ends ends = connection(tcp);
        park(lot, std::move(ends.ours));
        CHECK(lot.size() == 1);
        CHECK(turn(poller, lot).empty());
        CHECK(silent(ends.theirs.get()));
        REQUIRE(send_text(ends.theirs.get(), "request"));
        const auto out = wait_for_any(poller, lot);
        REQUIRE(out.size() == 1);
        CHECK(text_in(out[0].get()) == "request");
        CHECK(lot.size() == 0);
        // It is watched no more.
        REQUIRE(send_text(ends.theirs.get(), "more"));
        CHECK(turn(poller, lot).empty());
    }
}

TEST_CASE("connections leave in the order in which they become readable") {
    for (const bool tcp : {true, false}) {
        Poller poller;
        ParkingLot lot{poller, 100};
        std::vector<Ends> all;
        for (int i = 0; i < 20; ++i) {
            all.push_back(connection(tcp));
            park(lot, std::move(all.back().ours));
        }
        std::vector<int> order;
        for (int i = 0; i < 20; ++i) {
            order.push_back((i * 7 + 3) % 20);
        }
        for (const int i : order) {
            REQUIRE(send_text(all[static_cast<std::size_t>(i)].theirs.get(), std::to_string(i)));
        }
        std::vector<int> left;
        CHECK(soon([&] {
            for (const UniqueFd& fd : turn(poller, lot)) {
                left.push_back(std::stoi(text_in(fd.get())));
            }
            return left.size() == order.size();
        }));
        CHECK(left == order);
    }
}

TEST_CASE("a connection whose peer has gone is closed and counted") {
    for (const bool tcp : {true, false}) {
        CAPTURE(tcp);
        Poller poller;
        ParkingLot lot{poller, 10};
        const auto before = descriptors_of().size();
        Ends ends = connection(tcp);
        park(lot, std::move(ends.ours));
        ends.theirs.reset();
        std::size_t out = 0;
        CHECK(soon([&] {
            out += turn(poller, lot).size();
            return lot.size() == 0;
        }));
        CHECK(out == 0);
        CHECK(lot.peers_gone() == 1);
        CHECK(descriptors_of().size() == before);
    }
}

TEST_CASE("a peer that resets the connection is gone, too") {
    Poller poller;
    ParkingLot lot{poller, 10};
    Ends ends = tcp_pair();
    park(lot, std::move(ends.ours));
    const linger at_once{1, 0};
    setsockopt(ends.theirs.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ends.theirs.reset();
    CHECK(soon([&] { return turn(poller, lot).empty() && lot.size() == 0; }));
    CHECK(lot.peers_gone() == 1);
}

TEST_CASE("a peer that sends a request and then ends its side is served") {
    for (const bool tcp : {true, false}) {
        for (const bool closes : {true, false}) {
            CAPTURE(tcp);
            CAPTURE(closes);
            Poller poller;
            ParkingLot lot{poller, 10};
            Ends ends = connection(tcp);
            park(lot, std::move(ends.ours));
            REQUIRE(send_text(ends.theirs.get(), "request"));
            REQUIRE(::shutdown(ends.theirs.get(), SHUT_WR) == 0);
            if (closes) {
                ends.theirs.reset();
            }
            const auto out = wait_for_any(poller, lot);
            REQUIRE(out.size() == 1);
            CHECK(text_in(out[0].get()) == "request");
            CHECK(lot.peers_gone() == 0);
        }
    }
}

TEST_CASE("a connection that has something to read when it is parked comes out at once") {
    Poller poller;
    ParkingLot lot{poller, 10};
    Ends ends = socket_pair(SOCK_STREAM);
    REQUIRE(send_text(ends.theirs.get(), "request"));
    park(lot, std::move(ends.ours));
    CHECK(turn(poller, lot).size() == 1);
}

TEST_CASE("beyond the capacity the longest parked is closed") {
    Poller poller;
    ParkingLot lot{poller, 3};
    std::vector<Ends> all;
    for (int i = 0; i < 5; ++i) {
        all.push_back(socket_pair(SOCK_STREAM));
        park(lot, std::move(all.back().ours));
    }
    CHECK(lot.size() == 3);
    CHECK(lot.closed_for_room() == 2);
    CHECK(at_end(all[0].theirs.get()));
    CHECK(at_end(all[1].theirs.get()));
    for (const std::size_t i : {2U, 3U, 4U}) {
        CHECK(silent(all[i].theirs.get()));
    }
}

TEST_CASE("who makes room but has something to read is served instead") {
    Poller poller;
    ParkingLot lot{poller, 1};
    Ends first = socket_pair(SOCK_STREAM);
    Ends second = socket_pair(SOCK_STREAM);
    park(lot, std::move(first.ours));
    REQUIRE(send_text(first.theirs.get(), "request"));
    const UniqueFd out = lot.park(std::move(second.ours));
    REQUIRE(out);
    CHECK(text_in(out.get()) == "request");
    CHECK(lot.closed_for_room() == 0);
    CHECK(lot.size() == 1);
    CHECK(silent(second.theirs.get()));
    // The event that was on its way is for nobody.
    CHECK(turn(poller, lot).empty());
    CHECK(lot.size() == 1);
}

TEST_CASE("the order of arrival outlives departures from the middle") {
    Poller poller;
    ParkingLot lot{poller, 4};
    std::vector<Ends> all;
    const auto arrive = [&] {
        all.push_back(socket_pair(SOCK_STREAM));
        park(lot, std::move(all.back().ours));
    };
    for (int i = 0; i < 4; ++i) {
        arrive();
    }
    for (const std::size_t i : {1U, 3U, 0U}) {  // middle, newest, oldest
        REQUIRE(send_text(all[i].theirs.get(), "x"));
        CHECK(turn(poller, lot).size() == 1);
    }
    for (int i = 0; i < 5; ++i) {
        arrive();  // 4 to 8, of which two do not fit beside number 2
    }
    CHECK(lot.size() == 4);
    CHECK(lot.closed_for_room() == 2);
    CHECK(at_end(all[2].theirs.get()));
    CHECK(at_end(all[4].theirs.get()));
    for (const std::size_t i : {5U, 6U, 7U, 8U}) {
        CHECK(silent(all[i].theirs.get()));
    }
}

TEST_CASE("an event for somebody who has left does not touch who came after") {
    Poller poller;
    ParkingLot lot{poller, 10};
    Ends first = socket_pair(SOCK_STREAM);
    park(lot, std::move(first.ours));
    REQUIRE(send_text(first.theirs.get(), "x"));
    const auto events = poller.poll();
    REQUIRE(events.size() == 1);
    const Poller::Event event = events[0];
    REQUIRE(static_cast<bool>(lot.on_event(event)));
    Ends second = socket_pair(SOCK_STREAM);
    park(lot, std::move(second.ours));
    CHECK_FALSE(static_cast<bool>(lot.on_event(event)));
    CHECK(lot.size() == 1);
    CHECK(silent(second.theirs.get()));
    Poller::Event nowhere = event;
    nowhere.tag.index = 12345;
    CHECK_FALSE(static_cast<bool>(lot.on_event(nowhere)));
    REQUIRE(send_text(second.theirs.get(), "y"));
    const auto out = turn(poller, lot);
    REQUIRE(out.size() == 1);
    CHECK(text_in(out[0].get()) == "y");
}

TEST_CASE("a connection is watched no more when it leaves, although a child still has its copy") {
    Poller poller;
    ParkingLot lot{poller, 10};
    Ends ends = socket_pair(SOCK_STREAM);
    const UniqueFd copy{::fcntl(ends.ours.get(), F_DUPFD_CLOEXEC, 0)};
    park(lot, std::move(ends.ours));
    REQUIRE(send_text(ends.theirs.get(), "x"));
    CHECK(turn(poller, lot).size() == 1);
    CHECK(poller.poll().empty());
}

TEST_CASE("what can not be watched is given back") {
    Poller poller;
    ParkingLot lot{poller, 10};
    Ends ends = socket_pair(SOCK_STREAM);
    const int fd = ends.ours.get();
    REQUIRE(poller.add(fd, EPOLLIN, {Poller::Kind::child, 0, 0}));  // so that adding it once more fails
    const UniqueFd back = lot.park(std::move(ends.ours));
    CHECK(back.get() == fd);
    CHECK(lot.size() == 0);
    Ends other = socket_pair(SOCK_STREAM);
    park(lot, std::move(other.ours));
    REQUIRE(send_text(other.theirs.get(), "x"));
    CHECK(turn(poller, lot).size() == 1);
}

TEST_CASE("closing the silent ones gives out those that have something to read") {
    Poller poller;
    ParkingLot lot{poller, 100};
    std::vector<Ends> all;
    for (int i = 0; i < 10; ++i) {
        all.push_back(socket_pair(SOCK_STREAM));
        park(lot, std::move(all.back().ours));
    }
    for (const std::size_t i : {0U, 4U, 9U}) {
        REQUIRE(send_text(all[i].theirs.get(), std::to_string(i)));
    }
    std::vector<std::string> out;
    while (UniqueFd fd = lot.dismiss_silent(cede::children::monotonic_ns())) {
        out.push_back(text_in(fd.get()));
    }
    CHECK(out == std::vector<std::string>{"0", "4", "9"});
    CHECK(lot.size() == 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(at_end(all[i].theirs.get()));
    }
    CHECK(turn(poller, lot).empty());
}

TEST_CASE("who has nothing to read and must go is dismissed, as the lot was told") {
    Poller poller;
    std::vector<UniqueFd> dismissed;
    ParkingLot lot{poller, 2, Poller::Kind::leaving,
                   [&](UniqueFd fd) { dismissed.push_back(std::move(fd)); }};
    std::vector<Ends> all;
    std::uint64_t before_last = 0;
    for (int i = 0; i < 3; ++i) {
        all.push_back(socket_pair(SOCK_STREAM));
        before_last = cede::children::monotonic_ns();
        park(lot, std::move(all.back().ours));
    }
    REQUIRE(dismissed.size() == 1);  // for room
    CHECK(silent(all[0].theirs.get()));
    CHECK_FALSE(lot.dismiss_silent(before_last));
    CHECK(dismissed.size() == 2);
    CHECK(lot.size() == 1);
    REQUIRE(send_text(all[2].theirs.get(), "x"));
    const auto events = poller.poll();
    REQUIRE(events.size() == 1);
    CHECK(events[0].tag.kind == Poller::Kind::leaving);
    CHECK(lot.on_event(events[0]));
}

TEST_CASE("five thousand may be parked, and any of them is found again") {
    constexpr std::size_t many = 5000;
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit wanted{std::max<rlim_t>(before.rlim_cur, 2 * many + 500),
                        std::max<rlim_t>(before.rlim_max, 2 * many + 500)};
    if (setrlimit(RLIMIT_NOFILE, &wanted) != 0) {
        MESSAGE("the limit of open files is too low for this test: ulimit -Hn");
        return;
    }
    {
        Poller poller;
        ParkingLot lot{poller, many};
        std::vector<Ends> all;
        for (std::size_t i = 0; i < many; ++i) {
            all.push_back(i % 10 == 0 ? tcp_pair() : socket_pair(SOCK_STREAM));
            park(lot, std::move(all.back().ours));
        }
        CHECK(lot.size() == many);
        CHECK(poller.poll().empty());
        std::size_t out = 0;
        for (std::size_t i = 0; i < many; i += 2) {
            REQUIRE(send_text(all[i].theirs.get(), "x"));
        }
        CHECK(soon([&] { return (out += turn(poller, lot).size()) == many / 2; }));
        CHECK(lot.size() == many / 2);
        all.clear();
        CHECK(soon([&] { return turn(poller, lot).empty() && lot.size() == 0; }));
        CHECK(lot.peers_gone() == many / 2);
    }
    setrlimit(RLIMIT_NOFILE, &before);
}
