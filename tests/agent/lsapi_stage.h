// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <utility>

#include <doctest/doctest.h>

#include "tests/agent/lsapi_client.h"
#include "tests/agent/stand_in.h"

namespace cede::tests::lsapi {

// The host program as lsphp takes its connections.
inline StandIn::Options as_lsphp(StandIn::Options options = {}) {
    if (options.command.empty()) {
        options.command = {host_path(), "--lsapi"};
    }
    return options;
}

// A zygote with one child.
struct Stage : StandIn {
    explicit Stage(Options options = {}) : StandIn{as_lsphp(std::move(options))} {
        wait_until_ready();
        child = start_child();
    }
    Client client() { return Client{connect()}; }
    // One on which a request has been answered.
    Client used_client() {
        Client client{connect()};
        CHECK(client.ask(command("hello")) == "hello");
        CHECK(becomes(0, children::ChildState::idle));
        return client;
    }
    pid_t child = 0;
};

}  // namespace cede::tests::lsapi
