// SPDX-License-Identifier: Apache-2.0
// Modes in which requests start when they are due, whatever became of the earlier ones.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/bench/modes.h"

namespace cede::bench {

namespace {

// Starts requests of two kinds at given moments; each kind has its own tally.
class OpenLoop final : public Listener {
  public:
    enum Kind : std::uint8_t { steady, burst };

    OpenLoop(Engine& engine, const Options& options, std::uint32_t slots)
        : engine_(engine), kinds_(slots), pools_(options.pools) {
        for (SlotIndex slot = slots; slot > 0; --slot) {
            unused_.push_back(slot - 1);
        }
    }

    void start(Kind kind, const std::vector<std::byte>& request, Nanoseconds due) {
        if (unused_.empty()) {
            ++not_started;
            return;
        }
        const SlotIndex slot = unused_.back();
        unused_.pop_back();
        kinds_[slot] = kind;
        engine_.start(slot, next_pool_++ % pools_, Use::pooled, request, due);
    }

    void finished(const Finished& what) override {
        tallies[kinds_[what.slot]].add(what);
        unused_.push_back(what.slot);
    }

    void wait(Nanoseconds until) { engine_.step(*this, until); }
    [[nodiscard]] bool quiet() const noexcept { return engine_.under_way() == 0; }

    Tally tallies[2];
    std::uint64_t not_started = 0;

  private:
    Engine& engine_;
    std::vector<Kind> kinds_;
    std::vector<SlotIndex> unused_;
    std::uint32_t pools_;
    std::uint32_t next_pool_ = 0;
};

struct Plan {
    double rate = 0;  // requests per second of the steady kind
    std::uint32_t bursts = 0;
    Nanoseconds first_burst = 0;
    Nanoseconds duration = 0;
};

// Runs the plan; the end of the last request is bounded by the engine's patience.
Nanoseconds carry_out(const Plan& plan, const Options& options, OpenLoop& loop) {
    constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
    const WebServer& server = web_server(options.protocol);
    const auto burst_request = server.build_request(options.script, options.keep_alive);
    const auto steady_request = server.build_request(options.other_script, options.keep_alive);
    const Nanoseconds begin = now();
    std::uint64_t steady_started = 0;
    std::uint32_t bursts_started = 0;
    const auto steady_due = [&]() -> Nanoseconds {
        const auto due =
            begin + from_seconds(static_cast<double>(steady_started) / std::max(plan.rate, 1e-9));
        return plan.rate > 0 && due < begin + plan.duration ? due : never;
    };
    const auto burst_due = [&] {
        return bursts_started < plan.bursts ? begin + plan.first_burst + bursts_started * options.every
                                            : never;
    };
    for (;;) {
        const Nanoseconds at = now();
        for (Nanoseconds due = steady_due(); due <= at; due = steady_due()) {
            loop.start(OpenLoop::steady, steady_request, due);
            ++steady_started;
        }
        if (burst_due() <= at) {
            ++bursts_started;
            for (std::uint32_t each = 0; each < options.clients; ++each) {
                loop.start(OpenLoop::burst, burst_request, at);
            }
        }
        const Nanoseconds next = std::min(steady_due(), burst_due());
        if (next == never && loop.quiet()) {
            return begin;
        }
        loop.wait(std::min(next, at + second));
    }
}

}  // namespace

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
