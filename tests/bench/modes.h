// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/bench/options.h"
#include "tests/bench/report.h"

// One function a mode (see usage()). Each runs it to its end, which duration, rounds and patience bound, and
// returns the result. Throws what Engine and Target throw.
namespace cede::bench {

[[nodiscard]] JsonObject run_closed(const Options& options);
[[nodiscard]] JsonObject run_idle(const Options& options);
[[nodiscard]] JsonObject run_burst(const Options& options);
[[nodiscard]] JsonObject run_bursts(const Options& options);
[[nodiscard]] JsonObject run_rate(const Options& options);
[[nodiscard]] JsonObject run_new_connection(const Options& options);
[[nodiscard]] JsonObject run_groups(const Options& options);
[[nodiscard]] JsonObject run_leavers(const Options& options);
[[nodiscard]] JsonObject run_overload(const Options& options);
[[nodiscard]] JsonObject run_slow(const Options& options);
[[nodiscard]] JsonObject run_probe(const Options& options);

// What the options say about the engine, for `slots` requests at once.
[[nodiscard]] EngineSettings engine_settings(const Options& options, std::uint32_t slots);

}  // namespace cede::bench
