// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "pm/config.h"

namespace cede::pm {

// The text of one value into its type. The error quotes the text and says what would be right; the caller
// puts the place in front.
template <typename T>
using Value = std::expected<T, std::string>;

// All of the text as a number of type T. No blanks and no plus sign; a minus sign for a signed T only.
template <typename T>
std::optional<T> whole_number(std::string_view text, int base = 10) {
    T number{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number, base);
    return error == std::errc{} && rest == end ? std::optional{number} : std::nullopt;
}

// Decimal digits only, from `least` to `most`.
Value<unsigned> parse_number(std::string_view text, unsigned least, unsigned most);

// `30`, `30s`, `500ms`, `2m`, `1h`; whole numbers, seconds without a unit; from `least` to a day.
Value<std::chrono::milliseconds> parse_time(std::string_view text, std::chrono::milliseconds least);

// `64M`, `1G`, `500K` or bytes; from 1.
Value<std::uint64_t> parse_size(std::string_view text);

// Permission bits in octal: `660`, `0660`.
Value<unsigned> parse_mode(std::string_view text);

// `75%` (at most 100%), or a number of children.
Value<KeepaliveLimit> parse_keepalive_limit(std::string_view text);

// `auto` is Protocol::unknown.
Value<protocol::Protocol> parse_protocol(std::string_view text);
// As php-fpm has it: static, dynamic, ondemand.
Value<PoolMode> parse_pool_mode(std::string_view text);
Value<GiveUp> parse_give_up(std::string_view text);
Value<Overload> parse_overload(std::string_view text);
// `drop` or `run`: whether they are run.
Value<bool> parse_abandoned(std::string_view text);
// A variable's name as web servers pass it.
Value<std::string> parse_variable_name(std::string_view text);
// A script's name as web servers pass it.
Value<std::string> parse_ping_path(std::string_view text);
Value<SpawnMode> parse_spawn_mode(std::string_view text);
Value<LogLevel> parse_log_level(std::string_view text);
// `stderr`, `syslog`, or a full path, which is not looked at.
Value<std::string> parse_log_target(std::string_view text);
// `none`, or a full path that fits a socket's address, which is not looked at.
Value<std::string> parse_control(std::string_view text);
Value<LogFormat> parse_log_format(std::string_view text);
Value<ChildOutputMode> parse_child_output(std::string_view text);
Value<bool> parse_yes_or_no(std::string_view text);

}  // namespace cede::pm
