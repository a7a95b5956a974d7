// SPDX-License-Identifier: Apache-2.0
// Kept connections on which nothing is asked, and a health check on a new one now and then.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/bench/each_once.h"
#include "tests/bench/modes.h"

namespace cede::bench {

namespace {

class Probes final : public Listener {
  public:
    void finished(const Finished& what) override { tally.add(what); }
    Tally tally;
};

}  // namespace

JsonObject run_probe(const Options& options) {
    Options kept = options;
    kept.keep_alive = true;
    Engine engine{engine_settings(kept, options.idle + 1)};
    EachOnce opening{engine, kept, 8};
    opening.run(options.patience);
    const auto still_open = [&] {
        std::uint64_t open = 0;
        for (SlotIndex slot = 0; slot < options.idle; ++slot) {
            open += std::uint64_t{engine.has_own(slot)};
        }
        return open;
    };
    JsonObject opened;
    describe(opened, opening.tally, opening.begin, opening.window);
    const std::uint64_t idle_open = still_open();
    const auto request = web_server(options.protocol).build_request(options.other_script, false);
    Probes probes;
    const Nanoseconds begin = now();
    const Nanoseconds end = begin + options.duration;
    for (Nanoseconds due = begin; due < end; due = std::max(due + options.every, now())) {
        while (now() < due) {
            engine.step(probes, due);
        }
        engine.start(options.idle, 0, Use::fresh, request, due);
        while (engine.under_way() > 0) {
            engine.step(probes, now() + second);
        }
    }
    JsonObject result;
    describe(result, probes.tally, begin, now() - begin);
    describe(result, engine.counters());
    result.add("opening", opened).add("idle_open", idle_open);
    return result.add("idle_still_open", still_open());
}

}  // namespace cede::bench
