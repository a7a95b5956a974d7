// SPDX-License-Identifier: Apache-2.0
// Where a free child takes its connections from, and when it speaks up.
#include <csignal>
#include <cstring>
#include <map>
#include <netinet/in.h>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/stand_in.h"
#include "tests/support/descriptors.h"

using namespace cede::tests;
using cede::children::ChildSays;
using cede::children::ChildState;
using cede::children::Waiting;

namespace {

std::string port_of(const UniqueFd& client) {
    const SocketAddress address = address_of(client.get());
    sockaddr_in in{};
    std::memcpy(&in, &address.storage, sizeof in);
    return std::to_string(ntohs(in.sin_port));
}

}  // namespace

TEST_CASE("connections on every listener are taken") {
    for (const bool unix_sockets : {false, true}) {
        StandIn::Options options;
        options.listeners = 3;
        options.unix_sockets = unix_sockets;
        StandIn stand_in{options};
        stand_in.wait_until_ready();
        stand_in.start_child();
        for (const std::size_t listener : {2U, 0U, 1U, 1U}) {
            const UniqueFd client = stand_in.connect(listener);
            CHECK(ask(client.get(), command("hello", "", false)) == "hello");
            CHECK(ends_cleanly(client.get()));
        }
        CHECK(stand_in.slot(0).accepted == 4);
    }
}

TEST_CASE("a connection that is handed off is served like an accepted one") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    for (int i = 1; i <= 3; ++i) {
        Ends ends = tcp_pair();
        stand_in.hand_off(std::move(ends.ours));
        CHECK(ask(ends.theirs.get(), command("peer")) == port_of(ends.theirs));
        CHECK(ask(ends.theirs.get(), command("hello")) == "hello");
        CHECK(stand_in.slot(0).taken == static_cast<std::uint64_t>(i));
        CHECK(stand_in.slot(0).accepted == 0);
        ends.theirs.reset();
        CHECK(stand_in.becomes(0, ChildState::free));
    }
}

TEST_CASE("the rest of a request that another child has answered is skipped") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    Ends ends = tcp_pair();
    stand_in.hand_off(std::move(ends.ours));
    const std::string end_of_body{"\1\5\0\1\0\0\0\0", 8};
    CHECK(ask(ends.theirs.get(), end_of_body + command("hello")) == "hello");
    CHECK(stand_in.becomes(0, ChildState::idle));
}

TEST_CASE("each connection wakes one child") {
    StandIn::Options options;
    options.slots = 8;
    StandIn stand_in{options};
    stand_in.wait_until_ready();
    for (std::uint32_t i = 0; i < 8; ++i) {
        stand_in.start_child(i);
    }
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 8; ++i) {
        clients.push_back(stand_in.connect());
        CHECK(soon([&] {
            std::size_t idle = 0;
            for (std::uint32_t slot = 0; slot < 8; ++slot) {
                idle += stand_in.slot(slot).state == ChildState::idle;
            }
            return idle == clients.size();
        }));
    }
    std::uint64_t accepted = 0;
    for (std::uint32_t i = 0; i < 8; ++i) {
        accepted += stand_in.slot(i).accepted;
        CHECK(stand_in.slot(i).accepted == 1);
        CHECK_FALSE(stand_in.has_spoken(i));
    }
    CHECK(accepted == 8);
}

TEST_CASE("both queues are served in turn") {
    constexpr int each = 12;
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.control().waiting = Waiting::pressure;
    std::vector<UniqueFd> accepted;
    std::vector<UniqueFd> handed;
    const std::string request = command("serial", "", false);
    for (int i = 0; i < each; ++i) {
        accepted.push_back(stand_in.connect());
        REQUIRE(send_text(accepted.back().get(), request));
        Ends ends = tcp_pair();
        REQUIRE(send_text(ends.theirs.get(), request));
        stand_in.hand_off(std::move(ends.ours));
        handed.push_back(std::move(ends.theirs));
    }
    CHECK(stand_in.waiting_in_listen_queue() == each);
    stand_in.order(0);
    std::map<int, char> order;
    for (int i = 0; i < each; ++i) {
        order[std::stoi(read_answer(accepted[static_cast<std::size_t>(i)].get()).text)] = 'a';
        order[std::stoi(read_answer(handed[static_cast<std::size_t>(i)].get()).text)] = 'h';
    }
    std::string sources;
    for (const auto& [serial, source] : order) {
        sources += source;
    }
    CHECK(sources.size() == 2 * each);
    CHECK(sources.find("aa") == std::string::npos);
    CHECK(sources.find("hh") == std::string::npos);
    CHECK(stand_in.hear_zygote()->says == cede::children::ZygoteSays::forked);
}

TEST_CASE("while nobody is known to wait, a child that takes a connection tells nobody") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stand_in.becomes(0, ChildState::idle));
    CHECK_FALSE(stand_in.has_spoken(0));
}

TEST_CASE("at attention, a child that is free no more says so") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    stand_in.control().waiting = Waiting::attention;
    const UniqueFd client = stand_in.connect();
    CHECK(stand_in.hear(0).says == ChildSays::look);
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("under pressure, a child that takes or finds nothing keeps silent, for everybody looks") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    const pid_t child = stand_in.start_child();
    stand_in.control().waiting = Waiting::pressure;
    stand_in.ring(0);
    // Asked before it is taken: a silent one would be parked at once.
    REQUIRE(stand_in.stop(child));
    const UniqueFd client = stand_in.connect();
    REQUIRE(send_text(client.get(), command("hello", "", false)));
    ::kill(child, SIGCONT);
    CHECK(read_answer(client.get()).text == "hello");
    CHECK(stand_in.becomes(0, ChildState::free));
    CHECK_FALSE(stand_in.has_spoken(0));
}

TEST_CASE("a child that two queues have woken passes on the wake-up that it can not use") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    const pid_t child = stand_in.start_child();
    // Stopped, so that both are there when it looks.
    REQUIRE(stand_in.stop(child));
    const UniqueFd accepted = stand_in.connect();
    REQUIRE(send_text(accepted.get(), command("hello", "", false)));
    Ends handed = tcp_pair();
    REQUIRE(send_text(handed.theirs.get(), command("hello", "", false)));
    stand_in.hand_off(std::move(handed.ours));
    ::kill(child, SIGCONT);
    CHECK(stand_in.hear(0).says == ChildSays::pass_on);
    CHECK(read_answer(handed.theirs.get()).text == "hello");
    CHECK(read_answer(accepted.get()).text == "hello");
}

TEST_CASE("several listeners are served in turn") {
    StandIn::Options options;
    options.listeners = 3;
    StandIn stand_in{options};
    stand_in.wait_until_ready();
    stand_in.control().waiting = Waiting::pressure;
    std::vector<UniqueFd> clients;
    for (std::size_t i = 0; i < 15; ++i) {
        clients.push_back(stand_in.connect(i / 5));
        REQUIRE(send_text(clients.back().get(), command("serial", "", false)));
    }
    stand_in.order(0);
    std::map<int, std::size_t> order;
    for (std::size_t i = 0; i < 15; ++i) {
        order[std::stoi(read_answer(clients[i].get()).text)] = i / 5;
    }
    for (int serial = 1; serial + 2 <= 15; serial += 3) {
        CHECK(std::set<std::size_t>{order[serial], order[serial + 1], order[serial + 2]}.size() == 3);
    }
}

TEST_CASE("a doorbell without a meaning does not disturb a child, whatever it does") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    for (int i = 0; i < 50; ++i) {
        stand_in.ring(0);
    }
    const UniqueFd client = stand_in.connect();
    CHECK(stand_in.becomes(0, ChildState::idle));
    for (int i = 0; i < 50; ++i) {
        stand_in.ring(0);
    }
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stand_in.slot(0).parked == 0);
    CHECK_FALSE(stand_in.has_parked());
    CHECK_FALSE(stand_in.has_spoken(0));
}

TEST_CASE("a child without room for a descriptor ends, and what it could not take is taken by another") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    const pid_t exhausted = stand_in.start_child(0);
    UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("exhaust", "", false)) == "exhausted");
    CHECK(stand_in.becomes(0, ChildState::free));
    client = stand_in.connect();
    CHECK(stand_in.exit_of(exhausted) == 0);
    CHECK(stand_in.slot(0).state == ChildState::exiting);
    stand_in.order(1);
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a peer that has gone before its connection is taken costs its child nothing") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    for (int i = 0; i < 5; ++i) {
        stand_in.connect().reset();
    }
    const UniqueFd client = stand_in.connect();
    stand_in.order(0);
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stand_in.becomes(0, ChildState::idle));
}
