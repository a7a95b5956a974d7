// SPDX-License-Identifier: Apache-2.0
// LSAPI: from the first process to a child that serves, and what its scripts see of that.
#include <csignal>

#include <doctest/doctest.h>

#include "tests/agent/gate.h"
#include "tests/agent/listing.h"
#include "tests/agent/lsapi_stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using namespace cede::tests::lsapi;
using cede::children::ChildState;
using cede::children::ZygoteSays;
using cede::protocol::Protocol;

namespace {

// A program to which the agent does nothing.
StandIn::Options without_agent() {
    StandIn::Options options = as_lsphp();
    options.agent_variable = "nothing";
    options.blocking_listeners = true;
    return options;
}

}  // namespace

TEST_CASE("lsapi: without the agent the program is as careless as lsphp") {
    StandIn stand_in{without_agent()};
    Client client{stand_in.connect()};
    CHECK(client.ask(command("pid")).starts_with(std::to_string(stand_in.pid()) + " "));
    CHECK(client.ask(command("body", "", "some body")) == "some body");
    // What it reads beyond the end of a request is lost: this one is read together with the next.
    CHECK(client.ask(command("serial") + command("serial")) == "3");
    CHECK(client.ask(command("serial")) == "4");
    // The first seven bytes are overwritten by the rest.
    const std::string request = command("hello");
    Client slow{stand_in.connect()};
    client.close();
    REQUIRE(slow.send(request.substr(0, 7)));
    CHECK(soon([&] { return stand_in.waiting_in_listen_queue() == 0 && stand_in.sleeps(stand_in.pid()); }));
    REQUIRE(slow.send(request.substr(7)));
    CHECK_FALSE(slow.read_answer().complete);
}

TEST_CASE("lsapi: the agent takes over when the program first waits on the listener, and says so") {
    StandIn stand_in{as_lsphp()};
    CHECK(stand_in.hear_zygote()->says == ZygoteSays::hello);
    const auto ready = stand_in.hear_zygote();
    REQUIRE(ready.has_value());
    CHECK(ready->says == ZygoteSays::ready);
    CHECK(ready->pid == stand_in.pid());
    CHECK(ready->number == 1);
    CHECK(ready->protocol == Protocol::lsapi);
    CHECK(std::string{ready->sapi} == "litespeed");
}

TEST_CASE("lsapi: a child is the supervisor's own and sees what lsphp expects, call for call") {
    Stage stage;
    Client client = stage.client();
    REQUIRE(stage.becomes(0, ChildState::idle));
    const std::string request = command("trace");
    const std::string size = std::to_string(request.size());
    CHECK(client.ask(request) ==
          "select listener 1\naccept 5\nselect connection 1\nread " + size + "\nwrite 8\n");
    const std::string trace = client.ask(request);
    CHECK(trace.starts_with("writev "));
    CHECK(trace.ends_with("\nselect connection 1\nread " + size + "\nwrite 8\n"));
    CHECK(listing(trace).empty());
    const std::string pid = std::to_string(stage.child);
    CHECK(client.ask(command("pid")) == pid + " " + std::to_string(::getpid()) + " " + pid);
    CHECK(soon([&] { return stage.slot(0).requests == 3; }));
    CHECK(stage.slot(0).accepted == 1);
    client.close();
    CHECK(stage.becomes(0, ChildState::free));
    // The end of its connection it finds out by a read of nothing.
    Client next = stage.client();
    CHECK(next.ask(request).find("\nselect connection 1\nread 0\nclose 0\nselect listener 1\naccept 5\n") !=
          std::string::npos);
}

TEST_CASE("lsapi: where the program takes its listener to be, there is none any more") {
    for (const bool unix_sockets : {true, false}) {
        StandIn::Options options;
        options.unix_sockets = unix_sockets;
        Stage stage{options};
        Client client = stage.client();
        const std::string text = client.ask(command("descriptors"));
        CHECK(has_line(text, "connection 5"));
        const auto fds = listing(text);
        CHECK(fds.at(0) == "inherited /dev/null");
        CHECK(fds.at(3) == "cloexec /dev/null");
        CHECK(fds.at(4) == "inherited /dev/null");  // which it has opened itself
        CHECK(fds.at(5).starts_with("cloexec socket:"));
        for (const auto& [fd, what] : fds) {
            CAPTURE(what);
            CHECK((fd <= 5 || (fd >= 512 && what.starts_with("cloexec "))));
        }
        // Listener, handoff queue, channel, epoll.
        CHECK(fds.size() == 6 + 4);
    }
}

TEST_CASE("lsapi: connections of every listener are taken, and handed off ones") {
    StandIn::Options options;
    options.listeners = 3;
    Stage stage{options};
    for (const std::size_t listener : {2U, 0U, 1U}) {
        Client client{stage.connect(listener)};
        CHECK(client.ask(command("hello")) == "hello");
        client.close();
        CHECK(stage.becomes(0, ChildState::free));
    }
    Ends ends = tcp_pair();
    stage.hand_off(std::move(ends.ours));
    Client client{std::move(ends.theirs)};
    const SocketAddress own = address_of(client.fd());
    const auto port = ntohs(reinterpret_cast<const sockaddr_in*>(own.get())->sin_port);
    CHECK(client.ask(command("peer")) == std::to_string(port));
    CHECK(stage.slot(0).accepted == 3);
    CHECK(stage.slot(0).taken == 1);
}

TEST_CASE("lsapi: a child's states follow its connection") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    Stage stage;
    stage.keep_parts();
    Client client = stage.client();
    CHECK(stage.becomes(0, ChildState::idle));
    const std::string request = command("wait", gate.path);
    REQUIRE(client.send(request.substr(0, 3)));
    CHECK(stage.becomes(0, ChildState::reading));
    REQUIRE(client.send(request.substr(3)));
    CHECK(stage.becomes(0, ChildState::busy));
    const auto before = stage.slot(0).since_ns.load();
    CHECK(soon([&] { return gate.open(); }));
    CHECK(client.read_answer().text == "waited");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.slot(0).since_ns > before);
    CHECK(client.ask(command("hello")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    client.close();
    CHECK(stage.becomes(0, ChildState::free));
    CHECK(stage.slot(0).requests == 2);
    CHECK_FALSE(stage.has_spoken(0));
}

TEST_CASE("lsapi: a program that accepts without selecting speaks it when it is told to") {
    StandIn::Options options;
    options.command = {host_path(), "--lsapi-accept"};
    options.protocol = Protocol::lsapi;
    StandIn stand_in{options};
    CHECK(stand_in.wait_until_ready().protocol == Protocol::lsapi);
    stand_in.start_child();
    Client client{stand_in.connect()};
    REQUIRE(client.send(command("serial") + command("serial")));
    CHECK(client.read_answer().text == "1");
    CHECK(client.read_answer().text == "2");
    CHECK(stand_in.becomes(0, ChildState::idle));
    REQUIRE(stand_in.tell_to_give_up(0));
    UniqueFd parked = stand_in.hear_parked();
    CHECK(stand_in.becomes(0, ChildState::free));
    stand_in.hand_off(std::move(parked));
    CHECK(client.ask(command("serial")) == "3");
    Client garbled{stand_in.connect()};
    client.close();
    REQUIRE(garbled.send("no packet at all"));
    CHECK(garbled.ends());
    CHECK(stand_in.slot(0).refused == 1);
}

TEST_CASE("lsapi: no child ends because it has been idle for as long as lsphp would be") {
    StandIn::Options options;
    options.environment = {"HOST_MAX_IDLE=1"};
    Stage stage{options};
    stage.start_child(1);
    Client client = stage.client();
    REQUIRE(soon(
        [&] { return stage.slot(0).state == ChildState::idle || stage.slot(1).state == ChildState::idle; }));
    // One that was started later and has ended shows that the time is over.
    StandIn::Options other = without_agent();
    other.environment = options.environment;
    StandIn stand_in{other};
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
    CHECK(client.ask(command("hello")) == "hello");
    Client next = stage.client();
    CHECK(next.ask(command("trace")).starts_with("select listener 1\naccept 5\n"));
}

TEST_CASE("lsapi: a signal that asks a child to stop ends it, without losing a connection that is new") {
    for (const bool connected : {false, true}) {
        CAPTURE(connected);
        Stage stage;
        UniqueFd connection = connected ? stage.connect() : UniqueFd{};
        REQUIRE(stage.becomes(0, connected ? ChildState::idle : ChildState::free));
        REQUIRE(soon([&] { return StandIn::sleeps(stage.child); }));
        REQUIRE(::kill(stage.child, SIGUSR1) == 0);
        CHECK(stage.exit_of(stage.child) == 0);
        if (connected) {
            UniqueFd parked = stage.hear_parked();
            stage.start_child(1);
            stage.hand_off(std::move(parked));
            Client client{std::move(connection)};
            CHECK(client.ask(command("hello")) == "hello");
        }
    }
}

TEST_CASE("lsapi: a script that asks its own process to stop loses its answer, as in lsphp, and no more") {
    Stage stage;
    Client client = stage.used_client();
    CHECK(client.ask(command("kill", std::to_string(SIGUSR1))) == "(closed)");
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(stage.slot(0).requests == 1);
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("lsapi: at attention, a child that is free no more says so") {
    Stage stage;
    stage.control().waiting = cede::children::Waiting::attention;
    Client client = stage.client();
    CHECK(stage.hear(0).says == cede::children::ChildSays::look);
    CHECK(client.ask(command("hello")) == "hello");
}

TEST_CASE("lsapi: other signals interrupt the program's waiting and change nothing") {
    Stage stage;
    Client client = stage.used_client();
    for (int i = 0; i < 20; ++i) {
        REQUIRE(StandIn::disturb(stage.child, SIGUSR2));
        CHECK(client.ask(command("hello")) == "hello");
        CHECK(stage.becomes(0, ChildState::idle));
    }
    const std::string trace = client.ask(command("trace"));
    int interruptions = 0;
    for (std::size_t at = 0; (at = trace.find("select connection errno 4\n", at)) != std::string::npos;
         ++at) {
        ++interruptions;
    }
    CHECK(interruptions == 20);
    client.close();
    REQUIRE(stage.becomes(0, ChildState::free));
    REQUIRE(StandIn::disturb(stage.child, SIGUSR2));
    Client next = stage.client();
    CHECK(next.ask(command("pid")).starts_with(std::to_string(stage.child)));
    CHECK_FALSE(stage.has_parked());
}

TEST_CASE("lsapi: a program that a script starts gets none of the agent's descriptors and no connection") {
    Stage stage;
    Client client = stage.client();
    for (const std::string& text :
         {client.ask(command("popen", "/bin/ls -l /proc/self/fd")), client.ask(command("exec"))}) {
        CAPTURE(text);
        CHECK(text.find("socket:") == std::string::npos);
        CHECK(text.find("memfd:") == std::string::npos);
        CHECK(text.find("eventpoll") == std::string::npos);
        // Three, the program's own /dev/null, which lsphp leaks as well, and the folder that is looked at.
        CHECK(listing(text).size() == 5);
    }
    CHECK(client.ask(command("hello")) == "hello");
}

TEST_CASE("lsapi: a copy of the process has neither listener nor connection, and ends") {
    Stage stage;
    Client client = stage.client();
    const UniqueFd waiting = stage.connect();
    const std::string text = client.ask(command("fork"));
    CHECK(text.find("INTRUDER") == std::string::npos);
    CHECK(has_line(text, "write 8"));
    CHECK(has_line(text, "read 0"));
    CHECK(has_line(text, "accept -1 errno 22"));
    CHECK(text.find("socket:") == std::string::npos);
    CHECK(text.find("eventpoll") == std::string::npos);
    const auto fds = listing(text);
    CHECK(fds.at(5) == "cloexec /dev/null");
    CHECK(fds.rbegin()->first < 512);
    // One that goes on as the script did asks for the next request, then for another connection.
    const std::string both = client.ask(command("fork-both"));
    REQUIRE(both.starts_with("pid "));
    const pid_t copy = std::stoi(both.substr(4));
    CHECK(copy > 0);
    CHECK(soon([&] { return has_ended(copy); }));
    CHECK(client.silent());
    CHECK(client.ask(command("hello")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.waiting_in_listen_queue() == 1);
    CHECK(stage.slot(0).requests == 3);
}

TEST_CASE("lsapi: a child that dies in a request takes its connection with it and nothing else") {
    for (const std::string_view how : {"die", "kill"}) {
        CAPTURE(how);
        Stage stage;
        Client client = stage.used_client();
        stage.start_child(1);
        Client other = stage.client();
        CHECK(other.ask(command("hello")) == "hello");
        CHECK(client.ask(command(how, "9")) == "(closed)");
        CHECK(stage.exit_of(stage.child) == (how == "die" ? 3 << 8 : SIGKILL));
        CHECK(stage.hear(0).closed);
        CHECK(other.ask(command("hello")) == "hello");
        stage.start_child(0);
    }
}
