// SPDX-License-Identifier: Apache-2.0
// More requests than there is room for: what is answered, what is refused, and when.
#include <algorithm>
#include <cstdint>

#include "tests/bench/modes.h"
#include "tests/bench/open_loop.h"

namespace cede::bench {

JsonObject run_overload(const Options& options) {
    const double patience = static_cast<double>(options.patience) / static_cast<double>(second);
    const auto slots = static_cast<std::uint32_t>(std::min(options.rate * patience + 100, 20'000.0));
    Engine engine{engine_settings(options, slots)};
    Options same = options;
    same.other_script = options.script;
    OpenLoop loop{engine, options, slots};
    const Nanoseconds begin = carry_out({.rate = options.rate, .duration = options.duration}, same, loop);
    const Tally& tally = loop.tallies[OpenLoop::steady];
    JsonObject refused;
    refused.add("count", tally.refusals.count());
    describe(refused, tally.refusals);
    JsonObject result;
    // From the first request to the last answer: what was answered behind the end had its time, too.
    const Nanoseconds window = std::max(tally.last_answer - begin, options.duration);
    describe(result, tally, begin, window);
    describe(result, engine.counters());
    result.add("refused", refused).add("not_answered", tally.failed() - tally.refusals.count());
    return result.add("not_started", loop.not_started).add_ms("window_ms", window);
}

}  // namespace cede::bench
