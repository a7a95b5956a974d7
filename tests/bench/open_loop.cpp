// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/open_loop.h"

#include <algorithm>
#include <limits>

namespace cede::bench {

Nanoseconds carry_out(const Plan& plan, const Options& options, OpenLoop& loop,
                      const std::function<void(Nanoseconds)>& beside) {
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
        if (beside) {
            beside(at);
        }
        loop.wait(std::min(next, at + (beside ? 10 * millisecond : second)));
    }
}

}  // namespace cede::bench
