// SPDX-License-Identifier: Apache-2.0
// From the first process to a child that serves.
#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/stand_in.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::ChildSays;
using cede::children::ChildState;
using cede::children::ForkOrder;
using cede::children::ZygoteSays;

namespace {

StandIn::Options running(std::vector<std::string> command) {
    StandIn::Options options;
    options.command = std::move(command);
    return options;
}

}  // namespace

TEST_CASE("the agent says hello when it is loaded and ready when its program asks for a connection") {
    StandIn stand_in;
    const auto hello = stand_in.hear_zygote();
    REQUIRE(hello.has_value());
    CHECK(hello->says == ZygoteSays::hello);
    CHECK(hello->pid == stand_in.pid());
    const auto ready = stand_in.hear_zygote();
    REQUIRE(ready.has_value());
    CHECK(ready->says == ZygoteSays::ready);
    CHECK(ready->pid == stand_in.pid());
    CHECK(ready->number == 1);
    CHECK(ready->protocol == cede::protocol::Protocol::fastcgi);
    CHECK(std::string{ready->sapi} == "cgi-fcgi");
}

TEST_CASE("threads that were started too early are reported") {
    StandIn stand_in{running({host_path(), "--thread"})};
    CHECK(stand_in.wait_until_ready().number == 2);
}

TEST_CASE("a program that ends without having asked for a connection says so") {
    StandIn stand_in{running({host_path(), "--end"})};
    CHECK(stand_in.hear_zygote()->says == ZygoteSays::hello);
    const auto ended = stand_in.hear_zygote();
    REQUIRE(ended.has_value());
    CHECK(ended->says == ZygoteSays::ended);
    CHECK(std::string{ended->sapi} == "cgi-fcgi");
    CHECK_FALSE(stand_in.hear_zygote().has_value());
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
}

TEST_CASE("a child is forked on order, is the supervisor's own, and serves") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.order(2, 7);
    const auto forked = stand_in.hear_zygote();
    REQUIRE(forked.has_value());
    CHECK(forked->says == ZygoteSays::forked);
    CHECK(forked->slot == 2);
    CHECK(forked->generation == 7);
    CHECK(forked->pid > 0);
    CHECK(stand_in.slot(2).pid == static_cast<std::uint32_t>(forked->pid));
    CHECK(stand_in.hear(2).says == ChildSays::ready);
    CHECK(stand_in.becomes(2, ChildState::free));
    const UniqueFd client = stand_in.connect();
    const std::string pid = std::to_string(forked->pid);
    CHECK(ask(client.get(), command("pid")) == pid + " " + std::to_string(::getpid()) + " " + pid);
    CHECK(soon([&] { return stand_in.slot(2).requests == 1; }));
    CHECK(stand_in.slot(2).accepted == 1);
    ::kill(forked->pid, SIGKILL);
    CHECK(stand_in.exit_of(forked->pid) == SIGKILL);
}

TEST_CASE("a child's states follow its connection") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    StandIn stand_in;
    stand_in.keep_parts();
    stand_in.wait_until_ready();
    stand_in.start_child();
    UniqueFd client = stand_in.connect();
    CHECK(stand_in.becomes(0, ChildState::idle));
    const std::string request = command("wait", gate.path);
    REQUIRE(send_text(client.get(), request.substr(0, 3)));
    CHECK(stand_in.becomes(0, ChildState::reading));
    REQUIRE(send_text(client.get(), request.substr(3)));
    CHECK(stand_in.becomes(0, ChildState::busy));
    const auto before = stand_in.slot(0).since_ns.load();
    CHECK(soon([&] { return gate.open(); }));
    CHECK(read_answer(client.get()).text == "waited");
    CHECK(stand_in.becomes(0, ChildState::idle));
    CHECK(stand_in.slot(0).since_ns > before);
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stand_in.becomes(0, ChildState::idle));
    CHECK(soon([&] { return stand_in.slot(0).requests == 2; }));
    client.reset();
    CHECK(stand_in.becomes(0, ChildState::free));
    CHECK_FALSE(stand_in.has_spoken(0));
}

TEST_CASE("an order for a slot that does not exist is refused, and the zygote lives on") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    for (const std::uint32_t slot : {4U, 5U, 1000000U, 0xffffffffU}) {
        stand_in.order(slot);
        const auto report = stand_in.hear_zygote();
        REQUIRE(report.has_value());
        CHECK(report->says == ZygoteSays::not_forked);
        CHECK(report->slot == slot);
        CHECK(report->number == ERANGE);
    }
    stand_in.start_child(3);
}

TEST_CASE("an order that is none of ours is ignored, and its descriptor closed") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    const auto send = [&](const void* data, std::size_t size, int fd) {
        REQUIRE(cede::children::send_message(stand_in.zygote_channel(), data, size, fd));
    };
    const ForkOrder good;
    ForkOrder other;
    other.version += 1;
    char longer[64] = {1};
    for (const auto& [data, size] :
         {std::pair<const void*, std::size_t>{&good, 3}, {&other, sizeof other}, {longer, sizeof longer}}) {
        CAPTURE(size);
        Ends channel = socket_pair();
        send(data, size, channel.theirs.get());
        channel.theirs.reset();
        CHECK(at_end(channel.ours.get()));
    }
    send(&good, sizeof good, -1);
    const pid_t child = stand_in.start_child();
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("pid")).starts_with(std::to_string(child)));
}

TEST_CASE("twenty children have pids of their own and share the work") {
    StandIn::Options options;
    options.slots = 20;
    StandIn stand_in{options};
    stand_in.wait_until_ready();
    std::set<std::string> pids;
    std::vector<UniqueFd> clients;
    for (std::uint32_t i = 0; i < 20; ++i) {
        stand_in.start_child(i);
    }
    for (std::uint32_t i = 0; i < 20; ++i) {
        clients.push_back(stand_in.connect());
        const std::string answer = ask(clients.back().get(), command("pid"));
        pids.insert(answer.substr(0, answer.find(' ')));
    }
    CHECK(pids.size() == 20);
}

TEST_CASE("a zygote whose channel closes ends well, and its children serve on") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    stand_in.start_child();
    stand_in.close_zygote_channel();
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("signals do not reach the zygote, and what it was sent does not come to its children") {
    StandIn stand_in;
    stand_in.wait_until_ready();
    for (const int number : {SIGTERM, SIGUSR1, SIGHUP, SIGINT, SIGQUIT, SIGUSR2}) {
        REQUIRE(::kill(stand_in.pid(), number) == 0);
    }
    const pid_t child = stand_in.start_child();
    std::ifstream status{"/proc/" + std::to_string(child) + "/status"};
    int seen = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("SigBlk:") || line.starts_with("SigPnd:") || line.starts_with("ShdPnd:")) {
            CHECK(line.ends_with("\t0000000000000000"));
            ++seen;
        }
    }
    CHECK(seen == 3);
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a scoreboard of another version makes no zygote") {
    for (const int what : {0, 1, 2}) {
        CAPTURE(what);
        // Before the program asks for a connection: its shell waits for this line.
        const TempDirectory directory;
        const std::string gate = directory.path("gate");
        REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
        StandIn stand_in{running({"/bin/sh", "-c", "read line < " + gate + "; exec " + host_path()})};
        (what == 0   ? stand_in.control().magic
         : what == 1 ? stand_in.control().version
                     : stand_in.control().slot_count) += 1;
        const UniqueFd open_gate{::open(gate.c_str(), O_WRONLY | O_CLOEXEC)};
        REQUIRE(::write(open_gate.get(), "\n", 1) == 1);
        CHECK_THROWS(stand_in.wait_until_ready());
        CHECK(stand_in.exit_of(stand_in.pid()) == 0);
    }
}

TEST_CASE("an agent that is told nothing, or nonsense, leaves the program alone") {
    for (const std::string text :
         {"", "2 100 101 102 103 1 4", "3 100 101", "3 100 101 102 103 65 4", "3 -1 101 102 103 1 4",
          "3 100 101 102 103 1 99999999", "x", "3  ", "99999999999999999999 1 2 3 4 5 6"}) {
        CAPTURE(text);
        StandIn::Options options;
        options.agent_variable = text + " ";
        options.blocking_listeners = true;
        StandIn stand_in{options};
        // It accepts from descriptor 0 by itself, and keeps no one waiting.
        const UniqueFd client = stand_in.connect();
        const std::string answer = ask(client.get(), command("pid"));
        CHECK(answer.starts_with(std::to_string(stand_in.pid()) + " "));
        CHECK(ask(client.get(), command("hello")) == "hello");
    }
}
