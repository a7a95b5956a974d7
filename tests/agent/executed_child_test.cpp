// SPDX-License-Identifier: Apache-2.0
// A process that was executed to be a child, and no zygote.
#include <string>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "tests/agent/client.h"
#include "tests/agent/lsapi_client.h"
#include "tests/agent/stand_in.h"
#include "tests/support/descriptors.h"

using namespace cede;
using namespace cede::tests;
using children::ChildReport;
using children::ChildSays;
using children::ChildState;
using children::Received;

namespace {

constexpr std::uint32_t own_slot = 2;

StandIn::Options executed(std::vector<std::string> command) {
    StandIn::Options options;
    options.command = std::move(command);
    options.agent_variable = std::to_string(children::protocol_version) + " 100 101 102 103 1 4 2";
    return options;
}

// The first that it says is that it is ready.
void wait_until_it_serves(StandIn& stand_in) {
    ChildReport report{ChildSays::look};
    Received received;
    REQUIRE(soon([&] {
        received = children::receive_message(stand_in.zygote_channel(), &report, sizeof report, false);
        return received.kind != Received::Kind::nothing;
    }));
    CHECK(received.kind == Received::Kind::message);
    CHECK(received.size == sizeof report);
    CHECK(report.says == ChildSays::ready);
    CHECK(stand_in.becomes(own_slot, ChildState::free));
    CHECK(stand_in.slot(own_slot).pid.load() == static_cast<std::uint32_t>(stand_in.pid()));
}

}  // namespace

TEST_CASE("an executed child serves, gives up when it is told, and ends with its channel") {
    StandIn stand_in{executed({host_path()})};
    wait_until_it_serves(stand_in);
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("pid")).starts_with(std::to_string(stand_in.pid()) + " "));
    CHECK(stand_in.becomes(own_slot, ChildState::idle));
    CHECK(stand_in.slot(own_slot).requests.load() == 1);
    ChildState expected = ChildState::idle;
    REQUIRE(stand_in.slot(own_slot).state.compare_exchange_strong(expected, ChildState::giving_up));
    const children::Doorbell bell;
    REQUIRE(children::send_message(stand_in.zygote_channel(), &bell, sizeof bell, -1));
    stand_in.hand_off(stand_in.hear_parked());
    CHECK(ask(client.get(), command("hello")) == "hello");
    stand_in.close_zygote_channel();
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
    CHECK(stand_in.slot(own_slot).state.load() == ChildState::exiting);
}

TEST_CASE("an executed child's request can be ended, and its programs get none of its descriptors") {
    StandIn stand_in{executed({host_path()})};
    wait_until_it_serves(stand_in);
    const UniqueFd client = stand_in.connect();
    CHECK(ask(client.get(), command("popen", "ls -l /proc/self/fd")).find("socket") == std::string::npos);
    REQUIRE(stand_in.becomes(own_slot, ChildState::idle));
    const std::string request = command("spin");
    REQUIRE(send_text(client.get(), request));
    REQUIRE(stand_in.becomes(own_slot, ChildState::busy));
    stand_in.tell_to_end_request(stand_in.pid(), 2);
    CHECK(read_answer(client.get()).text.find("504") != std::string::npos);
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
}

TEST_CASE("lsapi: an executed child serves and ends with its channel") {
    StandIn stand_in{executed({host_path(), "--lsapi"})};
    wait_until_it_serves(stand_in);
    lsapi::Client client{stand_in.connect()};
    CHECK(client.ask(lsapi::command("hello")) == "hello");
    CHECK(stand_in.becomes(own_slot, ChildState::idle));
    stand_in.close_zygote_channel();
    CHECK(stand_in.exit_of(stand_in.pid()) == 0);
}
