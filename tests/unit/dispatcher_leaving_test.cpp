// SPDX-License-Identifier: Apache-2.0
// Connections whose peer has been told to close them, which LSAPI has a word for.
#include <string>

#include <doctest/doctest.h>

#include "protocol/lsapi.h"
#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using cede::children::ChildSays;
using cede::protocol::Protocol;

namespace {

std::string conn_close() {
    const auto packet = cede::protocol::lsapi::bare_packet(cede::protocol::lsapi::PacketType::conn_close);
    return {reinterpret_cast<const char*>(packet.data()), packet.size()};
}

}  // namespace

TEST_CASE("a connection that was seen off goes when its peer closes it") {
    Stage stage{1};
    stage.dispatcher().begin_drain();
    CHECK(stage.dispatcher().drained());
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours), ChildSays::see_off);
    stage.turn();
    CHECK(silent(ends.theirs.get()));
    CHECK(stage.dispatcher().lot().size() == 0);
    CHECK_FALSE(stage.dispatcher().drained());
    ends.theirs.reset();
    CHECK(soon([&] {
        stage.turn();
        return stage.dispatcher().drained();
    }));
}

TEST_CASE("a connection that was seen off is closed after a while if its peer does not") {
    Stage stage{1};
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours), ChildSays::see_off);
    stage.turn();
    CHECK(stage.dispatcher().check_interval() < std::chrono::seconds{1});
    stage.dispatcher().check();
    CHECK(silent(ends.theirs.get()));
    CHECK(soon([&] {
        stage.dispatcher().check();
        return !silent(ends.theirs.get());
    }));
    CHECK(at_end(ends.theirs.get()));
}

TEST_CASE("a request that crosses the farewell is handed to a child") {
    Stage stage{1};
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours), ChildSays::see_off);
    stage.turn();
    REQUIRE(send_text(ends.theirs.get(), "request"));
    UniqueFd taken;
    CHECK(soon([&] {
        stage.turn();
        taken = stage.take_handed();
        return static_cast<bool>(taken);
    }));
    CHECK(text_in(taken.get()) == "request");
}

TEST_CASE("of LSAPI connections the one that makes room is told before it is closed") {
    Stage stage{1, false, {1, 20}};
    stage.dispatcher().speak(Protocol::lsapi);
    Ends first = socket_pair(SOCK_STREAM);
    Ends second = socket_pair(SOCK_STREAM);
    stage.park(std::move(first.ours));
    stage.turn();
    stage.park(std::move(second.ours));
    stage.turn();
    CHECK(text_in(first.theirs.get()) == conn_close());
    CHECK(silent(first.theirs.get()));
    CHECK(silent(second.theirs.get()));
    CHECK(soon([&] {
        stage.dispatcher().check();
        return !silent(first.theirs.get());
    }));
    CHECK(at_end(first.theirs.get()));
}

TEST_CASE("a drain tells the peers of parked LSAPI connections and waits until they have closed") {
    Stage stage{1};
    stage.dispatcher().speak(Protocol::lsapi);
    Ends ends = socket_pair(SOCK_STREAM);
    stage.park(std::move(ends.ours));
    stage.turn();
    stage.dispatcher().begin_drain();
    CHECK(text_in(ends.theirs.get()) == conn_close());
    CHECK_FALSE(stage.dispatcher().drained());
    ends.theirs.reset();
    CHECK(soon([&] {
        stage.turn();
        return stage.dispatcher().drained();
    }));
}
