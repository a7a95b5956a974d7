// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/bench/engine.h"
#include "tests/bench/options.h"
#include "tests/bench/report.h"

// Requests that start when they are due, whatever became of the earlier ones.
namespace cede::bench {

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

// Runs the plan; the end of the last request is bounded by the engine's patience. `beside` is called every 10
// ms or more often. Returns the moment at which it began.
Nanoseconds carry_out(const Plan& plan, const Options& options, OpenLoop& loop,
                      const std::function<void(Nanoseconds)>& beside = {});

}  // namespace cede::bench
