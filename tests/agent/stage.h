// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <utility>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/stand_in.h"

namespace cede::tests {

// A zygote with one child.
struct Stage : StandIn {
    explicit Stage(Options options = {}) : StandIn{std::move(options)} {
        wait_until_ready();
        child = start_child();
    }
    // A connection on which one request has been answered.
    UniqueFd used_connection() {
        UniqueFd client = connect();
        CHECK(ask(client.get(), command("hello")) == "hello");
        CHECK(becomes(0, children::ChildState::idle));
        return client;
    }
    pid_t child = 0;
};

}  // namespace cede::tests
