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

enum class Mode : std::uint8_t { closed, burst, bursts, rate, new_connection, idle };

struct Options {
    Mode mode = Mode::closed;
    Protocol protocol = Protocol::fastcgi;
    std::string address;
    std::string script;
    std::string other_script;  // bursts: of the steady rate; new-connection: of the pinning requests
    std::optional<std::string> expect;
    bool keep_alive = true;
    std::uint32_t pools = 8;
    std::uint32_t max_connections = 0;  // of a pool; 0: as the web server of that protocol
    std::uint32_t clients = 1;          // burst, bursts: requests in one burst
    std::uint32_t children = 10;
    std::uint32_t idle = 10'000;
    std::uint32_t rounds = 100;
    std::uint32_t bursts = 5;
    std::uint64_t requests = 0;  // 0: as many as the duration allows
    double rate = 5;             // requests per second
    Nanoseconds every = 20 * second;
    Nanoseconds duration = 5 * second;
    Nanoseconds warmup = 0;
    Nanoseconds patience = 10 * second;
};

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// nullopt: help was asked for. Throws UsageError.
[[nodiscard]] std::optional<Options> parse_options(std::span<char* const> arguments);
[[nodiscard]] const char* usage() noexcept;

}  // namespace cede::bench
