// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tests/bench/engine.h"
#include "tests/bench/latency.h"

namespace cede::bench {

// What became of a group of requests.
struct Tally {
    LatencyHistogram latency;   // of the served ones
    LatencyHistogram refusals;  // of the refused ones
    std::array<std::uint64_t, failure_count> failures{};
    Nanoseconds last_answer = 0;

    void add(const Finished& what) noexcept;
    [[nodiscard]] std::uint64_t served() const noexcept { return latency.count(); }
    [[nodiscard]] std::uint64_t failed() const noexcept;
};

// Builds one JSON object; keys and strings are plain ASCII without quotes or backslashes.
class JsonObject {
  public:
    JsonObject& add(std::string_view key, std::uint64_t value);
    JsonObject& add(std::string_view key, double value);
    JsonObject& add(std::string_view key, bool value);
    JsonObject& add(std::string_view key, std::string_view value);
    JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view{value}); }
    JsonObject& add(std::string_view key, const JsonObject& value);
    JsonObject& add(std::string_view key, std::span<const JsonObject> values);
    // Milliseconds, with a key that says so.
    JsonObject& add_ms(std::string_view key, Nanoseconds value);

    [[nodiscard]] std::string text() const { return "{" + body_ + "}"; }

  private:
    void put(std::string_view key, std::string_view value);

    std::string body_;
};

// requests, ok, errors by kind, rate, mean and percentiles. `begin` is the moment from which rate and
// last_answer_ms count; the rate is that of the served over `window`.
void describe(JsonObject& into, const Tally& tally, Nanoseconds begin, Nanoseconds window);
void describe(JsonObject& into, const Counters& counters);
// mean, percentiles and maximum.
void describe(JsonObject& into, const LatencyHistogram& latency);
// How evenly `served` requests are spread over clients.
void describe_shares(JsonObject& into, std::span<const std::uint64_t> served);

}  // namespace cede::bench
