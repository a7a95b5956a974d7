// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "tests/bench/modes.h"

namespace cede::bench {

namespace {

// The server needs a moment to notice that a connection was closed and that an answer is out, and nothing
// tells us. Long enough for a loaded machine; it only separates the rounds and is not part of any figure.
constexpr Nanoseconds settle_time = 20 * millisecond;
constexpr std::uint32_t hopeless = 3;  // rounds not served in a row, after which the rest is left out
// What rounds may take, the patience for a few that are not served apart; a round that is takes 50 to 100 ms.
constexpr Nanoseconds round_time = 200 * millisecond;

class Rounds final : public Listener {
  public:
    Rounds(Engine& engine, const Options& options)
        : engine_(engine),
          pinning_(web_server(options.protocol).build_request(options.other_script, true)),
          probing_(web_server(options.protocol).build_request(options.script, true)),
          children_(options.children),
          pools_(options.pools) {}

    // True if the new connection was served.
    bool run_one() {
        probing_now_ = false;
        for (SlotIndex slot = 0; slot < children_; ++slot) {
            engine_.start(slot, slot % pools_, Use::own, pinning_, now());
        }
        wait_until_quiet();
        settle();
        const std::uint64_t before = probes.served();
        probing_now_ = true;
        engine_.start(children_, 0, Use::fresh, probing_, now());
        wait_until_quiet();
        settle();
        return probes.served() > before;
    }

    void finished(const Finished& what) override { (probing_now_ ? probes : pins).add(what); }

    Tally pins;
    Tally probes;

  private:
    void wait_until_quiet() {
        while (engine_.under_way() > 0) {
            engine_.step(*this, now() + second);
        }
    }

    void settle() {
        const Nanoseconds end = now() + settle_time;
        while (now() < end) {
            engine_.step(*this, end);
        }
    }

    Engine& engine_;
    std::vector<std::byte> pinning_;
    std::vector<std::byte> probing_;
    std::uint32_t children_;
    std::uint32_t pools_;
    bool probing_now_ = false;
};

}  // namespace

JsonObject run_new_connection(const Options& options) {
    Options kept = options;
    kept.keep_alive = true;
    if (options.other_script != options.script) {
        kept.expect.reset();
    }
    Engine engine{engine_settings(kept, options.children + 1)};
    Rounds rounds{engine, options};
    const Nanoseconds begin = now();
    std::uint32_t unserved_in_a_row = 0;
    std::uint32_t done = 0;
    const Nanoseconds end = begin + options.rounds * round_time + 10 * options.patience;
    while (done < options.rounds && unserved_in_a_row < hopeless && now() < end) {
        unserved_in_a_row = rounds.run_one() ? 0 : unserved_in_a_row + 1;
        ++done;
    }
    JsonObject pins;
    describe(pins, rounds.pins, begin, now() - begin);
    JsonObject result;
    describe(result, rounds.probes, begin, now() - begin);
    describe(result, engine.counters());
    result.add("rounds", std::uint64_t{done}).add("pinning", pins);
    return result;
}

}  // namespace cede::bench
