// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "tests/bench/modes.h"
#include "tests/bench/open_loop.h"

namespace cede::bench {

JsonObject run_burst(const Options& options) {
    Engine engine{engine_settings(options, options.clients)};
    OpenLoop loop{engine, options, options.clients};
    const Nanoseconds begin = carry_out({.bursts = 1}, options, loop);
    JsonObject result;
    describe(result, loop.tallies[OpenLoop::burst], begin, now() - begin);
    describe(result, engine.counters());
    return result;
}

JsonObject run_bursts(const Options& options) {
    const auto slots = static_cast<std::uint32_t>(
        std::min(options.clients * options.bursts + options.rate * 60 + 100, 50'000.0));
    // The answers of two scripts differ, so their bodies can not be checked against one text.
    Options unchecked = options;
    if (options.other_script != options.script) {
        unchecked.expect.reset();
    }
    Engine engine{engine_settings(unchecked, slots)};
    OpenLoop loop{engine, options, slots};
    const Plan plan{.rate = options.rate,
                    .bursts = options.bursts,
                    .first_burst = options.every / 2,
                    .duration = options.duration};
    const Nanoseconds begin = carry_out(plan, options, loop);
    JsonObject steady;
    describe(steady, loop.tallies[OpenLoop::steady], begin, plan.duration);
    JsonObject result;
    describe(result, loop.tallies[OpenLoop::burst], begin, now() - begin);
    describe(result, engine.counters());
    result.add("steady", steady).add("not_started", loop.not_started);
    return result;
}

JsonObject run_rate(const Options& options) {
    const auto slots = static_cast<std::uint32_t>(std::min(options.rate * 10 + 100, 8'000.0));
    Engine engine{engine_settings(options, slots)};
    Options same = options;
    same.other_script = options.script;
    OpenLoop loop{engine, options, slots};
    const Nanoseconds begin = carry_out({.rate = options.rate, .duration = options.duration}, same, loop);
    JsonObject result;
    describe(result, loop.tallies[OpenLoop::steady], begin, options.duration);
    describe(result, engine.counters());
    result.add("not_started", loop.not_started);
    return result;
}

}  // namespace cede::bench
