// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "tests/bench/clock.h"
#include "tests/bench/web_server.h"

namespace cede::bench {

enum class Mode : std::uint8_t {
    closed,
    burst,
    bursts,
    rate,
    new_connection,
    idle,
    groups,
    leavers,
    overload,
    slow,
    probe,
};

struct Options {
    Mode mode = Mode::closed;
    Protocol protocol = Protocol::fastcgi;
    std::string address;
    std::string script;
    // bursts: of the steady rate; new-connection: of the pinning requests; leavers: of those that stall the
    // children; probe: of the probes
    std::string other_script;
    std::string leaving_script;  // leavers: of those that leave
    std::optional<std::string> expect;
    bool keep_alive = true;
    bool table = true;  // groups: also for a reader, on the standard error
    std::uint32_t pools = 8;
    std::uint32_t max_connections = 0;  // of a pool; 0: as the web server of that protocol
    std::uint32_t clients = 1;          // burst, bursts: requests in one burst; groups: of each group
    std::uint32_t at_once = 100;        // leavers
    std::uint32_t groups = 3;
    std::uint32_t slow = 1000;
    std::uint32_t children = 10;
    std::uint32_t idle = 10'000;
    std::uint32_t rounds = 100;
    std::uint32_t bursts = 5;
    std::uint64_t requests = 0;  // 0: as many as the duration allows; leavers: good ones
    double rate = 5;             // requests per second
    Nanoseconds every = 20 * second;
    Nanoseconds duration = 5 * second;
    Nanoseconds warmup = 0;
    Nanoseconds patience = 10 * second;
    Nanoseconds stagger = second;          // groups
    Nanoseconds think = 0;                 // groups
    Nanoseconds stay = 100 * millisecond;  // leavers
};

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// nullopt: help was asked for. Throws UsageError.
[[nodiscard]] std::optional<Options> parse_options(std::span<char* const> arguments);
[[nodiscard]] const char* usage() noexcept;

}  // namespace cede::bench
