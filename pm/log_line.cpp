// SPDX-License-Identifier: Apache-2.0
#include "pm/log_line.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <syslog.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/locale/utf.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace cede::pm {
namespace {

using std::chrono::system_clock;
using Utf8 = boost::locale::utf::utf_traits<char>;

int priority_of(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::error:
            return LOG_ERR;
        case LogLevel::warning:
            return LOG_WARNING;
        case LogLevel::notice:
            return LOG_NOTICE;
        case LogLevel::info:
            return LOG_INFO;
        case LogLevel::debug:
            return LOG_DEBUG;
    }
    return LOG_DEBUG;
}

std::string utc(system_clock::time_point at) {
    const auto second = std::chrono::floor<std::chrono::seconds>(at);
    const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(at - second).count();
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(second)),
                       milliseconds);
}

void append_escaped(std::string& out, unsigned char byte) {
    switch (byte) {
        case '\n':
            out += "\\n";
            break;
        case '\r':
            out += "\\r";
            break;
        case '\t':
            out += "\\t";
            break;
        default:
            fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
            break;
    }
}

// Replaces what is no UTF-8, and control characters too where the format has no escapes of its own.
std::string clean(std::string_view text, bool control_characters) {
    std::string out;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
        const char* next = at;
        const auto code = Utf8::decode(next, end);
        const bool valid = boost::locale::utf::is_valid_codepoint(code);
        if (!valid) {
            next = at + 1;
        }
        if (valid && !(control_characters && (code < 0x20 || (code >= 0x7f && code < 0xa0)))) {
            out.append(at, next);
        } else {
            for (const char* byte = at; byte != next; ++byte) {
                append_escaped(out, static_cast<unsigned char>(*byte));
            }
        }
        at = next;
    }
    return out;
}

// The number behind `key`, which is a word of its own; "child=3 gen=1 pid=57".
std::optional<std::uint64_t> number_behind(std::string_view key, std::string_view text) {
    for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
        std::uint64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data() + at + key.size(), end, number);
        if ((at == 0 || text[at - 1] == ' ') && error == std::errc{}) {
            return number;
        }
    }
    return std::nullopt;
}

std::string as_json(LogLevel level, std::string_view text, system_clock::time_point at,
                    std::string_view author) {
    boost::json::object fields;
    fields["time"] = utc(at);
    fields["level"] = name_of(level);
    if (!author.empty()) {
        fields["source"] = "output";
    }
    fields["message"] = clean(text, false);
    // Words of others stand behind a colon or in quotes, and must not pass for an identity.
    const std::size_t end = std::min({text.find_first_of(":\"\n"), text.find(" '"), text.size()});
    const std::string_view own_words = author.empty() ? text.substr(0, end) : author;
    for (const std::string_view name : {"child", "gen", "pid"}) {
        if (const auto number = number_behind(fmt::format("{}=", name), own_words)) {
            fields[name] = *number;
        }
    }
    return boost::json::serialize(fields);
}

}  // namespace

std::string_view name_of(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::error:
            return "error";
        case LogLevel::warning:
            return "warning";
        case LogLevel::notice:
            return "notice";
        case LogLevel::info:
            return "info";
        case LogLevel::debug:
            return "debug";
    }
    return "";
}

std::string on_one_line(std::string_view text) {
    return clean(text, true);
}

std::string render(LogLevel level, std::string_view text, system_clock::time_point at, LogStyle style,
                   pid_t pid, std::string_view author) {
    const bool json = style.format == LogFormat::json;
    const std::string body = json ? as_json(level, text, at, author)
                                  : fmt::format("{}: {}{}{}", name_of(level), author,
                                                author.empty() ? "" : " output: ", on_one_line(text));
    switch (style.stamp) {
        case LogStamp::journal:
            return fmt::format("<{}>{}\n", priority_of(level), body);
        case LogStamp::syslog:
            return fmt::format("<{}>{:%b %e %H:%M:%S} cede[{}]: {}", LOG_DAEMON | priority_of(level),
                               fmt::localtime(system_clock::to_time_t(at)), pid, body);
        case LogStamp::time:
            break;
    }
    return json ? body + '\n' : fmt::format("{} cede: {}\n", utc(at), body);
}

}  // namespace cede::pm
