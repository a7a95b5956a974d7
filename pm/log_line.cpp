// SPDX-License-Identifier: Apache-2.0
#include "pm/log_line.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <syslog.h>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/locale/utf.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace cede::pm {
namespace {

using std::chrono::system_clock;
using Utf8 = boost::locale::utf::utf_traits<char>;

constexpr std::size_t any_length = std::numeric_limits<std::size_t>::max();

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

// What terminals and viewers obey instead of showing it. JSON has escapes of its own for those of C0.
bool is_to_be_escaped(std::uint32_t code, LogFormat format) noexcept {
    return (code < 0x20 && format == LogFormat::text) || (code >= 0x7f && code < 0xa0)  // DEL, C1
           || (code >= 0x2028 && code <= 0x202e)   // ends of lines and paragraphs, directions
           || (code >= 0x2066 && code <= 0x2069);  // isolated directions
}

// How long these bytes are in the line. In JSON: at the most.
std::size_t length_in_line(std::string_view bytes, LogFormat format) noexcept {
    std::size_t length = bytes.size();
    if (format == LogFormat::json) {
        for (const char byte : bytes) {
            length += static_cast<unsigned char>(byte) < 0x20 ? 5U : byte == '"' || byte == '\\' ? 1U : 0U;
        }
    }
    return length;
}

struct Cleaned {
    std::string text;
    std::size_t left_out = 0;  // bytes at the end for which there was no room
};

// Replaces what is no UTF-8 or is not to be shown, and ends before a character that makes it longer than
// `most` in the line.
Cleaned clean(std::string_view text, LogFormat format, std::size_t most) {
    Cleaned cleaned;
    std::string& out = cleaned.text;
    std::size_t length = 0;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
        const char* next = at;
        const auto code = Utf8::decode(next, end);
        const bool valid = boost::locale::utf::is_valid_codepoint(code);
        if (!valid) {
            next = at + 1;
        }
        const std::size_t before = out.size();
        if (valid && !is_to_be_escaped(code, format)) {
            out.append(at, next);
        } else {
            for (const char* byte = at; byte != next; ++byte) {
                append_escaped(out, static_cast<unsigned char>(*byte));
            }
        }
        length += length_in_line(std::string_view{out}.substr(before), format);
        if (length > most) {
            out.resize(before);
            cleaned.left_out = static_cast<std::size_t>(end - at);
            break;
        }
        at = next;
    }
    return cleaned;
}

std::string message_of(std::string_view text, LogStyle style, std::uint64_t left_out) {
    Cleaned cleaned =
        clean(text, style.format, style.stamp == LogStamp::journal ? longest_for_journal : any_length);
    if (const std::uint64_t missing = left_out + cleaned.left_out; missing > 0) {
        fmt::format_to(std::back_inserter(cleaned.text), " [{} more bytes were left out]", missing);
    }
    return std::move(cleaned.text);
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

std::string as_json(LogLevel level, std::string_view text, std::string_view message,
                    system_clock::time_point at, std::string_view author) {
    boost::json::object fields;
    fields["time"] = utc(at);
    fields["level"] = name_of(level);
    if (!author.empty()) {
        fields["source"] = "output";
    }
    fields["message"] = message;
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
    return clean(text, LogFormat::text, any_length).text;
}

std::string render(LogLevel level, std::string_view text, system_clock::time_point at, LogStyle style,
                   pid_t pid, std::string_view author, std::uint64_t left_out) {
    const bool json = style.format == LogFormat::json;
    const std::string message = message_of(text, style, left_out);
    const std::string body =
        json ? as_json(level, text, message, at, author)
             : fmt::format("{}: {}{}{}", name_of(level), author, author.empty() ? "" : " output: ", message);
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
