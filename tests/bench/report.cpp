// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace cede::bench {

void Tally::add(const Finished& what) noexcept {
    if (what.failure == Failure::refused) {
        refusals.record(what.at - what.scheduled);
    }
    if (what.failure != Failure::none) {
        ++failures[static_cast<std::size_t>(what.failure)];
        return;
    }
    latency.record(what.at - what.scheduled);
    last_answer = what.at;
}

std::uint64_t Tally::failed() const noexcept {
    return std::accumulate(failures.begin(), failures.end(), std::uint64_t{0});
}

void JsonObject::put(std::string_view key, std::string_view value) {
    if (!body_.empty()) {
        body_ += ", ";
    }
    body_.append("\"").append(key).append("\": ").append(value);
}

JsonObject& JsonObject::add(std::string_view key, std::uint64_t value) {
    put(key, std::to_string(value));
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, double value) {
    std::array<char, 64> text;
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 4).ptr;
    put(key, {text.data(), static_cast<std::size_t>(end - text.data())});
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, bool value) {
    put(key, value ? "true" : "false");
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view value) {
    put(key, std::string{"\""}.append(value).append("\""));
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, const JsonObject& value) {
    put(key, value.text());
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::span<const JsonObject> values) {
    std::string list;
    for (const JsonObject& value : values) {
        list += (list.empty() ? "" : ", ") + value.text();
    }
    put(key, "[" + list + "]");
    return *this;
}

JsonObject& JsonObject::add_ms(std::string_view key, Nanoseconds value) {
    return add(key, static_cast<double>(value) / 1e6);
}

void describe(JsonObject& into, const Tally& tally, Nanoseconds begin, Nanoseconds window) {
    JsonObject errors;
    for (std::size_t kind = 1; kind < failure_count; ++kind) {
        if (tally.failures[kind] > 0) {
            errors.add(failure_names[kind], tally.failures[kind]);
        }
    }
    const double seconds = static_cast<double>(window) / 1e9;
    into.add("requests", tally.served() + tally.failed()).add("ok", tally.served()).add("errors", errors);
    into.add("rate", seconds > 0 ? static_cast<double>(tally.served()) / seconds : 0.0);
    describe(into, tally.latency);
    into.add_ms("last_answer_ms", tally.last_answer > 0 ? tally.last_answer - begin : 0);
}

void describe(JsonObject& into, const LatencyHistogram& latency) {
    into.add("mean_ms", latency.mean() / 1e6);
    into.add_ms("p50_ms", latency.percentile(0.5)).add_ms("p90_ms", latency.percentile(0.9));
    into.add_ms("p99_ms", latency.percentile(0.99)).add_ms("p999_ms", latency.percentile(0.999));
    into.add_ms("max_ms", latency.max());
}

void describe(JsonObject& into, const Counters& counters) {
    into.add("connects", counters.connects).add("reconnects", counters.reconnects);
    into.add("closed_idle", counters.closed_idle).add("conn_closes", counters.conn_closes);
    into.add("retries", counters.retries).add("resent", counters.resent);
    into.add("resent_acknowledged", counters.resent_acknowledged).add("aborted", counters.aborted);
    into.add("waited", counters.waited).add("backlog_full", counters.backlog_full);
}

void describe_shares(JsonObject& into, std::span<const std::uint64_t> served) {
    const auto sum = std::accumulate(served.begin(), served.end(), std::uint64_t{0});
    const auto mean = static_cast<double>(sum) / static_cast<double>(served.size());
    const auto least = static_cast<double>(*std::ranges::min_element(served));
    const auto most = static_cast<double>(*std::ranges::max_element(served));
    into.add("slowest_share", mean > 0 ? least / mean : 0.0)
        .add("fastest_share", mean > 0 ? most / mean : 0.0);
    into.add("clients", std::uint64_t{served.size()});
    into.add("never_served", static_cast<std::uint64_t>(std::ranges::count(served, std::uint64_t{0})));
}

}  // namespace cede::bench
