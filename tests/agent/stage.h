// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <sys/types.h>
#include <utility>

#include <doctest/doctest.h>

#include "tests/agent/client.h"
#include "tests/agent/stand_in.h"

namespace cede::tests {

// Listening on a Unix socket or TCP.
inline StandIn::Options over(bool unix_sockets) {
    StandIn::Options options;
    options.unix_sockets = unix_sockets;
    return options;
}

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
    // For the children that are started from then on.
    void set_ping_path(std::string_view path) { path.copy(slot(0).ping_path, sizeof slot(0).ping_path - 1); }
    void set_queue_start(std::string_view name) {
        name.copy(slot(0).queue_start, sizeof slot(0).queue_start - 1);
    }
    pid_t child = 0;
};

}  // namespace cede::tests
