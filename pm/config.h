// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pm/error.h"
#include "protocol/detect.h"

namespace cede::pm {

enum class GiveUp { park, close };

// From the most to the least important; a level includes those before it.
enum class LogLevel { error, warning, notice, info, debug };

// `75%` or a plain number of children.
struct KeepaliveLimit {
    unsigned value = 0;
    bool percent = false;

    // How many of `total` children may keep a connection. Percentages are rounded down.
    [[nodiscard]] unsigned children(unsigned total) const noexcept;
};

// All that an administrator can say, with the defaults.
struct Config {
    std::vector<std::string> listen;  // as given, each one readable by parse_address(); empty: inherited
    unsigned listen_mode = 0660;
    std::string listen_owner;
    std::string listen_group;
    int backlog = 511;
    protocol::Protocol protocol =
        protocol::Protocol::unknown;  // unknown: by what the children turn out to be
    unsigned children = 5;
    std::string user;
    std::string group;
    bool allow_root = false;
    GiveUp give_up = GiveUp::park;
    std::optional<KeepaliveLimit> keepalive_limit;
    unsigned max_parked = 16384;
    unsigned max_requests = 0;                     // of one child, which then ends; 0: no limit
    std::chrono::milliseconds request_timeout{0};  // 0: none
    std::chrono::milliseconds stop_timeout{30000};
    std::chrono::milliseconds start_timeout{30000};
    LogLevel log_level = LogLevel::notice;
    std::string agent;  // empty: beside the executable, or in the library directory
    std::vector<std::string> command;

    // Where each setting came from, for messages: "--user", or "/etc/cede.conf:3: user". Ask where().
    std::map<std::string, std::string, std::less<>> origins;
};

// The place that `option` was set at; "--option" when it was not. For `listen`, `value` says which.
std::string where(const Config& config, std::string_view option, std::string_view value = {});

enum class Mode { run, check, help, version };

struct Invocation {
    Mode mode = Mode::run;
    Config config;
    std::string text;  // what --help or --version print, with a final line feed; else empty
};

// Variables by name, of which some supply defaults (pm/environment_defaults.h, CEDE_CHILD).
using Environment = std::map<std::string, std::string, std::less<>>;

// From NAME=VALUE as in environ(7). Of equal names the first counts, as for getenv(3).
Environment environment_of(std::span<const char* const> entries);

// What being started under another program's name adds to a command line (pm/lsphp_name.h).
struct StartedAs {
    std::string place;                   // for messages: "started as '/x/lsphp'"; empty: under our own name
    std::vector<std::string> command;    // if nothing else names one; empty: none was found
    std::vector<std::string> arguments;  // of that program, which go behind the command wherever it is from
};

// `argv` as main() gets it, with the program's name in front. Reads the file that --config names. A setting
// on the command line replaces the file's (all `listen` of it, for --listen). The command is that of the
// command line, else the file's, else the words of the variable CEDE_CHILD, else that of `started_as`. Every
// error has exit status 2, but for a file that can not be read.
std::expected<Invocation, Error> parse_invocation(std::span<const char* const> argv,
                                                  const Environment& environment,
                                                  const StartedAs& started_as = {});

}  // namespace cede::pm
