// SPDX-License-Identifier: Apache-2.0
// Clients that leave before they are answered, while all children are busy, and good ones behind them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/bench/each_once.h"
#include "tests/bench/modes.h"

namespace cede::bench {

namespace {

// A number of requests, each on a connection of its own, at most so many at once.
class Crowd final : public Listener {
  public:
    Crowd(Engine& engine, const Options& options, const std::string& script, std::uint32_t count,
          std::uint32_t at_once)
        : engine_(engine),
          request_(web_server(options.protocol).build_request(script, false)),
          count_(count),
          at_once_(std::min(count, at_once)) {}

    // To the end of the last one, which the engine's patience bounds. `beside` has requests under way, too.
    void run(Engine& beside, Listener& listener) {
        for (SlotIndex slot = 0; slot < at_once_; ++slot) {
            start(slot);
        }
        while (engine_.under_way() > 0) {
            engine_.step(*this, now() + millisecond);
            beside.step(listener, now());
        }
    }

    void finished(const Finished& what) override {
        tally.add(what);
        if (started_ < count_) {
            start(what.slot);
        }
    }

    Tally tally;

  private:
    void start(SlotIndex slot) {
        ++started_;
        engine_.start(slot, 0, Use::fresh, request_, now());
    }

    Engine& engine_;
    std::vector<std::byte> request_;
    std::uint32_t count_;
    std::uint32_t at_once_;
    std::uint32_t started_ = 0;
};

// Every child gets a request that keeps it busy for as long as the page says.
class Stall final : public Listener {
  public:
    Stall(Engine& engine, const Options& options)
        : engine_(engine),
          request_(web_server(options.protocol).build_request(options.other_script, false)),
          children_(options.children) {}

    void begin() {
        for (SlotIndex slot = 0; slot < children_; ++slot) {
            engine_.start(slot, 0, Use::fresh, request_, now());
        }
        // Until the children have taken them, which nothing tells.
        const Nanoseconds settled = now() + 200 * millisecond;
        while (now() < settled) {
            engine_.step(*this, settled);
        }
    }
    void finished(const Finished& what) override { tally.add(what); }

    Tally tally;

  private:
    Engine& engine_;
    std::vector<std::byte> request_;
    std::uint32_t children_;
};

}  // namespace

JsonObject run_leavers(const Options& options) {
    Options unchecked = options;
    unchecked.expect.reset();
    Options leaving = unchecked;
    leaving.patience = options.stay;
    const auto good = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(options.requests, 1, 10'000));
    Engine stalled{engine_settings(unchecked, options.children)};
    Engine leavers{engine_settings(leaving, std::min(options.clients, options.at_once))};
    Engine goods{engine_settings(options, good)};
    Stall stall{stalled, options};
    Crowd crowd{leavers, options, options.leaving_script, options.clients, options.at_once};
    Crowd followers{goods, options, options.script, good, good};
    const Nanoseconds begin = now();
    stall.begin();
    crowd.run(stalled, stall);
    const Nanoseconds left = now();
    const bool stalled_meanwhile = stalled.under_way() == options.children;
    followers.run(stalled, stall);
    while (stalled.under_way() > 0) {
        stalled.step(stall, now() + second);
    }
    const auto failed = [&](Failure how) { return crowd.tally.failures[static_cast<std::size_t>(how)]; };
    JsonObject gone;
    gone.add("connected", options.clients - failed(Failure::connect)).add("left", failed(Failure::timeout));
    gone.add("not_connected", failed(Failure::connect)).add("answered", crowd.tally.served());
    gone.add("refused", failed(Failure::refused)).add_ms("took_ms", left - begin);
    JsonObject result;
    describe(result, followers.tally, begin, now() - left);
    // Negative: before the last stalled request ended.
    result.add_ms("behind_stall_ms", followers.tally.last_answer - stall.tally.last_answer);
    result.add("stalled_meanwhile", stalled_meanwhile).add("stalls_served", stall.tally.served());
    return result.add("leavers", gone);
}

}  // namespace cede::bench
