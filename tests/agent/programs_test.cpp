// SPDX-License-Identifier: Apache-2.0
// What a script starts gets neither the listener, nor the connection, nor anything of the agent's.
#include <csignal>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/gate.h"
#include "tests/agent/listing.h"
#include "tests/agent/stage.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::ChildState;

TEST_CASE("the child's own descriptors stand where they would without the agent, the agent's far above") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string text = ask(client.get(), command("descriptors"));
    CHECK(has_line(text, "connection 3"));
    const auto fds = listing(text);
    CHECK(fds.at(0) == "inherited /dev/null");
    CHECK(fds.at(3).starts_with("cloexec socket:"));
    for (const auto& [fd, what] : fds) {
        CAPTURE(what);
        CHECK((fd <= 3 || fd >= 512));
        CHECK((fd <= 2 || what.starts_with("cloexec ")));
    }
    // Listener, handoff queue, channel, epoll: no more than is needed.
    CHECK(fds.size() == 4 + 4);
}

TEST_CASE("under a low limit of open files the agent's descriptors still stand above the script's") {
    StandIn::Options options;
    options.command = {"/bin/sh", "-c", "ulimit -n 256; exec " + host_path()};
    Stage stage{options};
    const UniqueFd client = stage.connect();
    const auto fds = listing(ask(client.get(), command("descriptors")));
    CHECK(fds.size() == 4 + 4);
    CHECK(std::next(fds.begin(), 4)->first >= 128);
}

TEST_CASE("a program that a script starts gets three descriptors and none of ours") {
    Stage stage;
    const UniqueFd client = stage.connect();
    for (const std::string& text : {ask(client.get(), command("popen", "/bin/ls -l /proc/self/fd")),
                                    ask(client.get(), command("exec"))}) {
        CAPTURE(text);
        const auto fds = listing(text);
        CHECK(fds.at(0) == "/dev/null");
        CHECK(fds.at(1).starts_with("pipe:"));
        CHECK(text.find("socket:") == std::string::npos);
        CHECK(text.find("memfd:") == std::string::npos);
        CHECK(text.find("eventpoll") == std::string::npos);
        // Its own view of the folder is the last.
        CHECK(fds.size() == 4);
    }
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a program that outlives its request keeps neither the connection nor the port") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    Stage stage;
    const SocketAddress address = stage.address();
    const UniqueFd client = stage.connect();
    CHECK(ask(client.get(),
              command("popen", "(read line < " + gate.path + ") > /dev/null 2>&1 & echo started", false))
              .starts_with("started\n"));
    CHECK(ends_cleanly(client.get()));
    stage.close_listeners();
    stage.close_zygote_channel();
    CHECK(stage.exit_of(stage.pid()) == 0);
    stage.close_channel(0);
    CHECK(stage.exit_of(stage.child) == 0);
    CHECK(can_listen_at(address));
    // Only now may it end; it is still there to read this.
    CHECK(gate.open());
}

TEST_CASE("a copy of the process has neither listener nor connection") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const UniqueFd waiting = stage.connect();
    const std::string text = ask(client.get(), command("fork"));
    CHECK(text.find("INTRUDER") == std::string::npos);
    // As writing to /dev/null: it works, and reaches nobody.
    CHECK(has_line(text, "write 8"));
    CHECK(has_line(text, "read 0"));
    CHECK(has_line(text, "accept -1 errno 22"));
    CHECK(has_line(text, "close 0"));
    CHECK(text.find("socket:") == std::string::npos);
    CHECK(text.find("eventpoll") == std::string::npos);
    const auto fds = listing(text);
    CHECK(fds.at(3) == "cloexec /dev/null");
    CHECK(fds.rbegin()->first < 512);
    // The connection goes on as if nothing had been.
    CHECK(ask(client.get(), command("hello")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(stage.waiting_in_listen_queue() == 1);
    CHECK(soon([&] { return stage.slot(0).requests == 2; }));
}

TEST_CASE("a copy that lives on keeps the connection from nobody, and the child from nothing") {
    const TempDirectory directory;
    const Gate gate{directory.path("gate")};
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string text = ask(client.get(), command("fork", gate.path, false));
    CHECK(has_line(text, "write 8"));
    CHECK(ends_cleanly(client.get()));
    CHECK(stage.becomes(0, ChildState::free));
    const UniqueFd next = stage.connect();
    CHECK(ask(next.get(), command("hello")) == "hello");
    CHECK(stage.becomes(0, ChildState::idle));
    REQUIRE(stage.tell_to_give_up(0));
    stage.hear_parked().reset();
    CHECK(ends_cleanly(next.get()));
    // The channel has no second owner, either.
    ::kill(stage.child, SIGKILL);
    CHECK(stage.exit_of(stage.child) == SIGKILL);
    CHECK(stage.hear(0).closed);
    CHECK(gate.open());
}

TEST_CASE("a copy that goes on as the script did answers nobody and ends") {
    Stage stage;
    const UniqueFd client = stage.connect();
    const std::string text = ask(client.get(), command("fork-both"));
    REQUIRE(text.starts_with("pid "));
    const pid_t copy = std::stoi(text.substr(4));
    CHECK(copy > 0);
    // It has asked for the next request, then for another connection, and got neither.
    CHECK(soon([&] { return has_ended(copy); }));
    CHECK(silent(client.get()));
    CHECK(soon([&] { return stage.slot(0).requests == 1; }));
    CHECK(stage.becomes(0, ChildState::idle));
    CHECK(ask(client.get(), command("hello")) == "hello");
}

TEST_CASE("a child that dies in a request takes its connection with it and nothing else") {
    Stage stage;
    const pid_t other = stage.start_child(1);
    const UniqueFd clients[] = {stage.connect(), stage.connect()};
    CHECK(ask(clients[0].get(), command("hello")) == "hello");
    CHECK(ask(clients[1].get(), command("hello")) == "hello");
    const std::string victim = ask(clients[0].get(), command("pid"));
    CHECK(ask(clients[0].get(), command("die")) == "(closed)");
    const bool first = victim.starts_with(std::to_string(stage.child) + " ");
    CHECK(stage.exit_of(first ? stage.child : other) == 3 << 8);
    CHECK(stage.hear(first ? 0 : 1).closed);
    CHECK(ask(clients[1].get(), command("hello")) == "hello");
    // Its slot can be used again.
    stage.start_child(first ? 0 : 1);
}
