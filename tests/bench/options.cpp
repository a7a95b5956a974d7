// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace cede::bench {

namespace {

constexpr std::array<std::pair<std::string_view, Mode>, 11> modes{{
    {"closed", Mode::closed},
    {"burst", Mode::burst},
    {"bursts", Mode::bursts},
    {"rate", Mode::rate},
    {"new-connection", Mode::new_connection},
    {"idle", Mode::idle},
    {"groups", Mode::groups},
    {"leavers", Mode::leavers},
    {"overload", Mode::overload},
    {"slow", Mode::slow},
    {"probe", Mode::probe},
}};

struct Count {
    std::string_view name;
    std::uint32_t Options::*value;
    std::uint32_t most;
};
constexpr std::array<Count, 10> counts{{
    {"--pools", &Options::pools, 1'000},
    {"--max-connections", &Options::max_connections, 10'000},
    {"--clients", &Options::clients, 50'000},
    {"--children", &Options::children, 10'000},
    {"--idle", &Options::idle, 100'000},
    {"--rounds", &Options::rounds, 100'000},
    {"--bursts", &Options::bursts, 1'000},
    {"--at-once", &Options::at_once, 10'000},
    {"--groups", &Options::groups, 100},
    {"--slow", &Options::slow, 50'000},
}};

struct Duration {
    std::string_view name;
    Nanoseconds Options::*value;
    double least;  // seconds
};
constexpr std::array<Duration, 7> durations{{
    {"--every", &Options::every, 0.01},
    {"--duration", &Options::duration, 0.01},
    {"--warmup", &Options::warmup, 0},
    {"--patience", &Options::patience, 0.01},
    {"--stagger", &Options::stagger, 0},
    {"--think", &Options::think, 0},
    {"--stay", &Options::stay, 0.01},
}};

template <typename Number>
Number number(std::string_view option, std::string_view text, Number least, Number most) {
    Number value{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size() || value < least || value > most) {
        throw UsageError(std::string{option} + " " + std::string{text} + ": give a number from " +
                         std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
}

std::uint32_t count(std::string_view option, std::string_view text, std::uint32_t most) {
    return number<std::uint32_t>(option, text, 1, most);
}

Nanoseconds seconds(std::string_view option, std::string_view text, double least) {
    return from_seconds(number<double>(option, text, least, 3600));
}

bool on_or_off(std::string_view option, std::string_view text) {
    if (text != "on" && text != "off") {
        throw UsageError(std::string{option} + " " + std::string{text} + ": give on or off");
    }
    return text == "on";
}

Protocol protocol(std::string_view text) {
    if (text != "fastcgi" && text != "lsapi") {
        throw UsageError("--protocol " + std::string{text} + ": give fastcgi or lsapi");
    }
    return text == "lsapi" ? Protocol::lsapi : Protocol::fastcgi;
}

Mode mode(std::string_view text) {
    const auto* found = std::ranges::find(modes, text, &std::pair<std::string_view, Mode>::first);
    if (found == modes.end()) {
        throw UsageError(
            "mode " + std::string{text} +
            ": give closed, burst, bursts, rate, new-connection, idle, groups, leavers, overload, "
            "slow or probe");
    }
    return found->second;
}

bool set_workload(Options& options, std::string_view name, std::string_view value) {
    if (const auto* known = std::ranges::find(counts, name, &Count::name); known != counts.end()) {
        options.*known->value = count(name, value, known->most);
    } else if (const auto* duration = std::ranges::find(durations, name, &Duration::name);
               duration != durations.end()) {
        options.*duration->value = seconds(name, value, duration->least);
    } else if (name == "--requests") {
        options.requests = number<std::uint64_t>(name, value, 1, 1'000'000'000);
    } else if (name == "--rate") {
        options.rate = number<double>(name, value, 0.01, 1'000'000);
    } else {
        return false;
    }
    return true;
}

void set(Options& options, std::string_view name, std::string_view value) {
    if (name == "--protocol") {
        options.protocol = protocol(value);
    } else if (name == "--address") {
        options.address = value;
    } else if (name == "--script") {
        options.script = value;
    } else if (name == "--other-script") {
        options.other_script = value;
    } else if (name == "--leaving-script") {
        options.leaving_script = value;
    } else if (name == "--expect") {
        options.expect = value;
    } else if (name == "--table") {
        options.table = on_or_off(name, value);
    } else if (name == "--keep-alive") {
        options.keep_alive = on_or_off(name, value);
    } else if (!set_workload(options, name, value)) {
        throw UsageError(std::string{name} + ": no such option; cede-load --help lists them");
    }
}

}  // namespace

std::optional<Options> parse_options(std::span<char* const> arguments) {
    Options options;
    bool have_mode = false;
    for (std::size_t at = 0; at < arguments.size(); ++at) {
        const std::string_view name = arguments[at];
        if (name == "--help" || name == "-h") {
            return std::nullopt;
        }
        if (!name.starts_with("--")) {
            if (have_mode) {
                throw UsageError(std::string{name} + ": a second mode; give one");
            }
            options.mode = mode(name);
            have_mode = true;
            continue;
        }
        if (at + 1 == arguments.size()) {
            throw UsageError(std::string{name} + ": a value is missing behind it");
        }
        set(options, name, arguments[++at]);
    }
    if (!have_mode || options.address.empty() || options.script.empty()) {
        throw UsageError("a mode, --address and --script are needed; cede-load --help explains them");
    }
    if (options.other_script.empty()) {
        options.other_script = options.script;
    }
    if (options.leaving_script.empty()) {
        options.leaving_script = options.script;
    }
    return options;
}

}  // namespace cede::bench
