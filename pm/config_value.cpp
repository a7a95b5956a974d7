// SPDX-License-Identifier: Apache-2.0
#include "pm/config_value.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <sys/un.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "pm/limits.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

using std::chrono::milliseconds;

// Digits and a unit behind them. No factor: there is no such unit, or no digit.
struct Measure {
    std::optional<std::uint64_t> number;
    std::optional<std::uint64_t> factor;
};

template <std::size_t Count>
Measure split_measure(std::string_view text,
                      const std::array<std::pair<std::string_view, std::uint64_t>, Count>& units) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto unit =
        std::ranges::find(units, text.substr(digits), &std::pair<std::string_view, std::uint64_t>::first);
    if (digits == 0 || unit == units.end()) {
        return {};
    }
    return {whole_number<std::uint64_t>(text.substr(0, digits)), unit->second};
}

template <typename T, std::size_t Count>
Value<T> parse_word(std::string_view text, const std::array<std::pair<std::string_view, T>, Count>& words) {
    std::string all;
    for (const auto& [word, value] : words) {
        if (text == word) {
            return value;
        }
        all += (all.empty() ? "" : ", ") + std::string{word};
    }
    return std::unexpected(fmt::format("{} is not known here; give one of: {}", quoted(text), all));
}

}  // namespace

Value<unsigned> parse_number(std::string_view text, unsigned least, unsigned most) {
    const auto number = whole_number<std::uint64_t>(text);
    const bool digits =
        !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) {
        return std::unexpected(
            fmt::format("{} is not a whole number; give one from {} to {}", quoted(text), least, most));
    }
    if (!number || *number < least || *number > most) {
        return std::unexpected(
            fmt::format("{} is out of range; give a number from {} to {}", quoted(text), least, most));
    }
    return static_cast<unsigned>(*number);
}

Value<milliseconds> parse_time(std::string_view text, milliseconds least) {
    static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 5> units{{
        {"", 1000},
        {"ms", 1},
        {"s", 1000},
        {"m", 60 * 1000},
        {"h", 60 * 60 * 1000},
    }};
    constexpr std::uint64_t day = 24 * 60 * 60 * 1000;
    const auto [number, factor] = split_measure(text, units);
    if (!factor) {
        return std::unexpected(
            fmt::format("{} is not a time; write it like 30, 30s, 500ms, 2m or 1h", quoted(text)));
    }
    if (!number || *number > day / *factor || *number * *factor < static_cast<std::uint64_t>(least.count())) {
        return std::unexpected(
            fmt::format("{} is out of range; give a time from {}ms to 24h", quoted(text), least.count()));
    }
    return milliseconds{*number * *factor};
}

Value<std::uint64_t> parse_size(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> units{
        {{"", 1}, {"K", 1U << 10U}, {"M", 1U << 20U}, {"G", 1U << 30U}}};
    constexpr std::uint64_t most = std::uint64_t{1} << 50U;
    const auto [number, factor] = split_measure(text, units);
    if (!factor || !number || *number == 0 || *number > most / *factor) {
        return std::unexpected(
            fmt::format("{} is not a size; write it like 67108864, 512K, 64M or 1G", quoted(text)));
    }
    return *number * *factor;
}

Value<unsigned> parse_mode(std::string_view text) {
    const auto mode = whole_number<std::uint64_t>(text, 8);
    if (text.size() < 3 || text.size() > 4 || !mode || *mode > 0777) {
        return std::unexpected(
            fmt::format("{} is not a file mode; give three octal digits, like 0660", quoted(text)));
    }
    return static_cast<unsigned>(*mode);
}

Value<KeepaliveLimit> parse_keepalive_limit(std::string_view text) {
    const bool percent = text.ends_with('%');
    const auto number = whole_number<std::uint64_t>(percent ? text.substr(0, text.size() - 1) : text);
    const unsigned most = percent ? 100 : limits::most_children;
    if (!number || *number > most) {
        return std::unexpected(
            fmt::format("{} is not a limit; give a number of children from 0 to {}, or a percentage like 75%",
                        quoted(text), limits::most_children));
    }
    return KeepaliveLimit{static_cast<unsigned>(*number), percent};
}

Value<protocol::Protocol> parse_protocol(std::string_view text) {
    using protocol::Protocol;
    static constexpr std::array<std::pair<std::string_view, Protocol>, 3> words{
        {{"auto", Protocol::unknown}, {"fastcgi", Protocol::fastcgi}, {"lsapi", Protocol::lsapi}}};
    return parse_word(text, words);
}

Value<PoolMode> parse_pool_mode(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, PoolMode>, 3> words{
        {{"static", PoolMode::fixed}, {"dynamic", PoolMode::dynamic}, {"ondemand", PoolMode::ondemand}}};
    return parse_word(text, words);
}

Value<GiveUp> parse_give_up(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, GiveUp>, 2> words{
        {{"park", GiveUp::park}, {"close", GiveUp::close}}};
    return parse_word(text, words);
}

Value<Overload> parse_overload(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, Overload>, 3> words{
        {{"fifo", Overload::fifo}, {"lifo", Overload::lifo}, {"reject", Overload::reject}}};
    return parse_word(text, words);
}

Value<bool> parse_abandoned(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, bool>, 2> words{{{"drop", false}, {"run", true}}};
    return parse_word(text, words);
}

Value<std::string> parse_variable_name(std::string_view text) {
    const auto fits = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (text.empty() || text.size() > limits::longest_variable_name || !std::ranges::all_of(text, fits)) {
        return std::unexpected(
            fmt::format("{} is no variable's name; give letters, digits and _, {} at the most", quoted(text),
                        limits::longest_variable_name));
    }
    return std::string{text};
}

Value<std::string> parse_ping_path(std::string_view text) {
    const auto fits = [](char c) { return c > ' ' && c < '\x7f' && c != '?' && c != '#'; };
    if (!text.starts_with('/') || text.size() > limits::longest_ping_path ||
        !std::ranges::all_of(text, fits)) {
        return std::unexpected(fmt::format(
            "{} is no path; give one that begins with a slash, as in /ping, of {} characters at the most",
            quoted(text), limits::longest_ping_path));
    }
    return std::string{text};
}

Value<SpawnMode> parse_spawn_mode(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, SpawnMode>, 2> words{
        {{"zygote", SpawnMode::zygote}, {"exec", SpawnMode::exec}}};
    return parse_word(text, words);
}

Value<LogLevel> parse_log_level(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, LogLevel>, 5> words{
        {{"error", LogLevel::error},
         {"warning", LogLevel::warning},
         {"notice", LogLevel::notice},
         {"info", LogLevel::info},
         {"debug", LogLevel::debug}}};
    return parse_word(text, words);
}

Value<std::string> parse_log_target(std::string_view text) {
    if (text == "stderr" || text == "syslog" || text.starts_with('/')) {
        return std::string{text};
    }
    return std::unexpected(fmt::format(
        "{} is no place for a log; give stderr, syslog, or the full path of a file", quoted(text)));
}

Value<std::string> parse_control(std::string_view text) {
    constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
    if (text != "none" && (!text.starts_with('/') || text.ends_with('/'))) {
        return std::unexpected(fmt::format(
            "{} is neither 'none' nor the full path of a socket, like /run/cede/www.sock", quoted(text)));
    }
    if (text.size() > longest) {
        return std::unexpected(
            fmt::format("the path is too long: {} bytes, and {} is the most for a socket; "
                        "choose a shorter one",
                        text.size(), longest));
    }
    return std::string{text};
}

Value<LogFormat> parse_log_format(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, LogFormat>, 2> words{
        {{"text", LogFormat::text}, {"json", LogFormat::json}}};
    return parse_word(text, words);
}

Value<ChildOutputMode> parse_child_output(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, ChildOutputMode>, 2> words{
        {{"log", ChildOutputMode::log}, {"inherit", ChildOutputMode::inherit}}};
    return parse_word(text, words);
}

Value<bool> parse_yes_or_no(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, bool>, 8> words{{{"yes", true},
                                                                             {"no", false},
                                                                             {"true", true},
                                                                             {"false", false},
                                                                             {"on", true},
                                                                             {"off", false},
                                                                             {"1", true},
                                                                             {"0", false}}};
    return parse_word(text, words);
}

}  // namespace cede::pm
