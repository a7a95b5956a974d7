// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
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

// `text` for a log of text lines: control bytes (of C1, too) and what is no UTF-8 become \n, \r, \t or \xNN.
std::string on_one_line(std::string_view text);

// One event as the bytes to write, on one line whatever `text` is. `pid` is ours. With `author`, as in
// "child=3 gen=1 pid=57", the text is the output of that process, and marked as such in a place where no text
// can be.
std::string render(LogLevel level, std::string_view text, std::chrono::system_clock::time_point at,
                   LogStyle style, pid_t pid, std::string_view author = {});

}  // namespace cede::pm
