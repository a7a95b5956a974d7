// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/bench/engine.h"
#include "tests/bench/options.h"
#include "tests/bench/report.h"

namespace cede::bench {

// One request on the own connection of each of the first `count` slots, a few at a time.
class EachOnce final : public Listener {
  public:
    EachOnce(Engine& engine, const Options& options, std::uint32_t at_once)
        : engine_(engine),
          request_(web_server(options.protocol).build_request(options.script, true)),
          count_(options.idle),
          pools_(options.pools),
          at_once_(at_once) {}

    void run(Nanoseconds patience) {
        begin = now();
        // A server that serves one now and then is no better than one that stalls.
        end_ = begin + 10 * patience;
        failed_in_a_row_ = 0;
        for (next_ = 0; next_ < std::min(at_once_, count_);) {
            start_next();
        }
        while (engine_.under_way() > 0) {
            engine_.step(*this, now() + patience);
        }
        window = now() - begin;
    }

    void finished(const Finished& what) override {
        tally.add(what);
        failed_in_a_row_ = what.failure == Failure::none ? 0 : failed_in_a_row_ + 1;
        // A server that stalls would cost the patience once for each connection.
        if (next_ < count_ && failed_in_a_row_ < at_once_ && what.at < end_) {
            start_next();
        }
    }

    Tally tally;
    Nanoseconds begin = 0;
    Nanoseconds window = 0;

  private:
    void start_next() {
        const SlotIndex slot = next_++;
        engine_.start(slot, slot % pools_, Use::own, request_, now());
    }

    Engine& engine_;
    std::vector<std::byte> request_;
    std::uint32_t next_ = 0;
    std::uint32_t count_;
    std::uint32_t pools_;
    std::uint32_t at_once_;
    std::uint32_t failed_in_a_row_ = 0;
    Nanoseconds end_ = 0;
};

}  // namespace cede::bench
