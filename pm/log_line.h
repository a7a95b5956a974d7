// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "pm/config.h"

namespace cede::pm {

// What stands in front of a line. Whoever collects lines for us stamps them himself.
enum class LogStamp : std::uint8_t {
    time,     // 2026-11-30T12:34:56.789Z, in UTC
    journal,  // the priority alone, <4> (sd-daemon(3))
    syslog,   // priority, local time, name and pid, and no line feed at the end: one datagram (RFC 3164, 4.1)
};

struct LogStyle {
    LogFormat format = LogFormat::text;
    LogStamp stamp = LogStamp::time;
};

std::string_view name_of(LogLevel level) noexcept;

// journald splits a longer line than LineMax= says (48 KiB, journald.conf(5)) and takes a priority off each
// part: what we write there is kept shorter, with room for all that stands around a text.
inline constexpr std::size_t longest_for_journal = 40'000;

// `text` for a log of text lines: control bytes (of C1, too), what ends a line or turns the direction of
// writing in Unicode, and what is no UTF-8 become \n, \r, \t or \xNN.
std::string on_one_line(std::string_view text);

// One event as the bytes to write, on one line whatever `text` is. `pid` is ours. With `author`, as in
// "child=3 gen=1 pid=57", the text is the output of that process, and marked as such in a place where no text
// can be. `left_out`: so many bytes are missing at the end of `text`; this is said, and so is what is left
// out here because the journal would not take it as one line.
std::string render(LogLevel level, std::string_view text, std::chrono::system_clock::time_point at,
                   LogStyle style, pid_t pid, std::string_view author = {}, std::uint64_t left_out = 0);

}  // namespace cede::pm
