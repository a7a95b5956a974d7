// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/bench/each_once.h"
#include "tests/bench/modes.h"

namespace cede::bench {

EngineSettings engine_settings(const Options& options, std::uint32_t slots) {
    return {.target = Target{options.address},
            .server = &web_server(options.protocol),
            .keep_alive = options.keep_alive,
            .pools = options.pools,
            .max_connections = options.max_connections,
            .slots = slots,
            .patience = options.patience,
            .expected = options.expect.value_or(""),
            .check_body = options.expect.has_value()};
}

namespace {

// Clients on the slots from `first` on, each with one request under way, until told to stop.
class ClosedLoop final : public Listener {
  public:
    ClosedLoop(Engine& engine, const Options& options, SlotIndex first)
        : engine_(engine),
          request_(web_server(options.protocol).build_request(options.script, options.keep_alive)),
          served_(options.clients),
          pools_(options.pools),
          first_(first) {}

    void run(Nanoseconds duration, std::uint64_t requests) {
        std::ranges::fill(served_, 0);
        tally = {};
        requests_left_ = requests;
        begin = now();
        const Nanoseconds end = begin + duration;
        for (std::uint32_t client = 0; client < served_.size() && !started_; ++client) {
            start(client, begin);
        }
        started_ = true;
        while (requests_left_ > 0 && now() < end) {
            engine_.step(*this, end);
        }
        window = now() - begin;
        oldest_unanswered = engine_.oldest_age(now());
    }

    // Lets the requests that are under way end without starting others.
    void drain(Nanoseconds patience) {
        draining_ = true;
        const Nanoseconds end = now() + patience + second;
        while (engine_.under_way() > 0 && now() < end) {
            engine_.step(*this, end);
        }
    }

    void finished(const Finished& what) override {
        // One step can bring more answers than were still wanted.
        if (draining_ || requests_left_ == 0) {
            return;
        }
        const std::uint32_t client = what.slot - first_;
        tally.add(what);
        served_[client] += std::uint64_t{what.failure == Failure::none};
        --requests_left_;
        if (requests_left_ > 0) {
            start(client, what.at);
        }
    }

    void report(JsonObject& into) const {
        describe(into, tally, begin, window);
        describe_shares(into, served_);
        into.add_ms("window_ms", window).add_ms("oldest_unanswered_ms", oldest_unanswered);
    }

    Tally tally;
    Nanoseconds begin = 0;
    Nanoseconds window = 0;
    Nanoseconds oldest_unanswered = 0;

  private:
    void start(std::uint32_t client, Nanoseconds at) {
        engine_.start(first_ + client, client % pools_, Use::pooled, request_, at);
    }

    Engine& engine_;
    std::vector<std::byte> request_;
    std::vector<std::uint64_t> served_;
    std::uint64_t requests_left_ = 0;
    std::uint32_t pools_;
    SlotIndex first_;
    bool started_ = false;
    bool draining_ = false;
};

}  // namespace

JsonObject run_closed(const Options& options) {
    constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
    Engine engine{engine_settings(options, options.clients)};
    ClosedLoop loop{engine, options, 0};
    if (options.warmup > 0) {
        loop.run(options.warmup, unlimited);
        engine.reset_counters();
    }
    const bool counted = options.requests > 0;
    loop.run(counted ? 3600 * second : options.duration, counted ? options.requests : unlimited);
    JsonObject result;
    loop.report(result);
    describe(result, engine.counters());
    return result;
}

JsonObject run_idle(const Options& options) {
    constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
    constexpr std::uint32_t at_once = 8;
    Engine engine{engine_settings(options, options.idle + options.clients)};
    JsonObject result;
    const auto count_open = [&] {
        std::uint64_t open = 0;
        for (SlotIndex slot = 0; slot < options.idle; ++slot) {
            open += std::uint64_t{engine.has_own(slot)};
        }
        return open;
    };

    EachOnce opening{engine, options, at_once};
    opening.run(options.patience);
    JsonObject opened;
    describe(opened, opening.tally, opening.begin, opening.window);
    result.add("opening", opened).add("idle_open", count_open());

    ClosedLoop loop{engine, options, options.idle};
    if (options.warmup > 0) {
        loop.run(options.warmup, unlimited);
    }
    engine.reset_counters();
    loop.run(options.duration, unlimited);
    loop.report(result);
    describe(result, engine.counters());
    loop.drain(options.patience);
    result.add("idle_still_open", count_open());

    engine.reset_counters();
    EachOnce again{engine, options, at_once};
    again.run(options.patience);
    JsonObject afterwards;
    describe(afterwards, again.tally, again.begin, again.window);
    describe(afterwards, engine.counters());
    result.add("afterwards", afterwards);
    return result;
}

}  // namespace cede::bench
