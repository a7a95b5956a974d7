// SPDX-License-Identifier: Apache-2.0
// Slow clients beside good ones, and the good ones alone.
#include <algorithm>
#include <cstdint>

#include "tests/bench/modes.h"
#include "tests/bench/open_loop.h"
#include "tests/bench/slow_clients.h"

namespace cede::bench {

namespace {

JsonObject run_good(const Options& options, const std::function<void(Nanoseconds)>& beside) {
    const auto slots = static_cast<std::uint32_t>(std::min(options.rate * 10 + 100, 8'000.0));
    Engine engine{engine_settings(options, slots)};
    OpenLoop loop{engine, options, slots};
    const Nanoseconds begin =
        carry_out({.rate = options.rate, .duration = options.duration}, options, loop, beside);
    JsonObject result;
    describe(result, loop.tallies[OpenLoop::steady], begin, options.duration);
    describe(result, engine.counters());
    return result.add("not_started", loop.not_started);
}

}  // namespace

JsonObject run_slow(const Options& options) {
    Options same = options;
    same.other_script = options.script;
    const JsonObject without = run_good(same, {});
    const Target target{options.address};
    const auto request = web_server(options.protocol).build_request(options.script, true);
    SlowClients clients{target, request, options.slow, second};
    std::uint32_t fewest = options.slow;
    // All of them are there before the good ones begin.
    const Nanoseconds there = now() + 2 * second;
    while (now() < there) {
        clients.tick(now());
        const timespec pause{.tv_sec = 0, .tv_nsec = 5 * millisecond};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
    }
    const std::uint32_t connected = clients.connected();
    JsonObject result = run_good(same, [&](Nanoseconds at) {
        clients.tick(at);
        fewest = std::min(fewest, clients.connected());
    });
    JsonObject slow;
    slow.add("connected", std::uint64_t{connected}).add("fewest_connected", std::uint64_t{fewest});
    slow.add("connects", clients.connects).add("closed", clients.closed).add("told", clients.told);
    slow.add("bytes", clients.bytes);
    return result.add("without", without).add("slow", slow);
}

}  // namespace cede::bench
