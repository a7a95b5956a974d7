// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pm/error.h"
#include "pm/recycling.h"
#include "pm/sizing.h"
#include "protocol/detect.h"

namespace cede::pm {

enum class GiveUp { park, close };

// In which order those who wait are served when more comes than can be served.
enum class Overload {
    fifo,
    lifo,    // the newest first, once the oldest have begun to wait too long
    reject,  // who would wait too long is refused when it comes
};

enum class SpawnMode { zygote, exec };

// From the most to the least important; a level includes those before it.
enum class LogLevel { error, warning, notice, info, debug };

enum class LogFormat { text, json };

// What becomes of what children write to their descriptors 1 and 2: lines of the log, or nothing, those being
// cede's own stderr.
enum class ChildOutputMode { log, inherit };

// `75%` or a plain number of children.
struct KeepaliveLimit {
    unsigned value = 0;
    bool percent = false;

    // How many of `total` children may keep a connection. Percentages are rounded down.
    [[nodiscard]] unsigned children(unsigned total) const noexcept;
};

// What children see of the environment.
struct EnvironmentOptions {
    std::map<std::string, std::string, std::less<>> set;  // by name; `$NAME`: what cede's own has there
    bool clear = false;                                   // nothing of cede's own besides
};

// All that an administrator can say, with the defaults.
struct Config {
    std::vector<std::string> listen;  // as given, each one readable by parse_address(); empty: inherited
    unsigned listen_mode = 0660;
    std::string listen_owner;
    std::string listen_group;
    int backlog = 511;
    bool backlog_auto = false;  // `backlog` is the one to begin with
    protocol::Protocol protocol =
        protocol::Protocol::unknown;  // unknown: by what the children turn out to be
    unsigned children = 5;            // the most, unless pool_mode is fixed
    PoolMode pool_mode = PoolMode::fixed;
    std::optional<unsigned> start_servers;
    std::optional<unsigned> min_spare;
    std::optional<unsigned> max_spare;
    std::chrono::milliseconds idle_timeout{10000};
    unsigned max_spawn_rate = 32;
    std::string user;
    std::string group;
    bool allow_root = false;
    SpawnMode spawn = SpawnMode::zygote;
    std::string chroot;  // of the children, as are the following
    std::string chdir;
    std::optional<unsigned> umask;
    std::optional<int> nice;
    std::optional<unsigned> rlimit_nofile;
    std::optional<std::uint64_t> rlimit_core;  // bytes; RLIM_INFINITY: unlimited
    EnvironmentOptions environment;
    std::string title;  // the supervisor's, in brackets behind its own
    GiveUp give_up = GiveUp::park;
    std::optional<KeepaliveLimit> keepalive_limit;
    unsigned max_parked = 16384;
    unsigned max_requests = 0;                     // of one child, which then ends; 0: no limit
    std::chrono::milliseconds request_timeout{0};  // 0: none
    bool request_timeout_track_finished = false;
    std::chrono::milliseconds stall_timeout{0};  // 0: none
    bool run_abandoned = false;                  // requests whose peer has gone
    std::chrono::milliseconds max_wait{0};       // of a request for a child; 0: no limit
    Overload overload = Overload::fifo;
    bool pass_queue_time = false;
    std::string queue_start;     // the variable that says when the web server got a request; empty: none
    std::string ping_path;       // a script name that is answered without PHP; empty: none
    unsigned probe_reserve = 0;  // children for new connections only
    std::chrono::milliseconds first_byte_timeout{
        60000};                                       // of a new connection; 0: none, as for the following
    std::chrono::milliseconds read_timeout{60000};    // of a request's head
    std::chrono::milliseconds body_timeout{60000};    // between two pieces of a body
    std::uint64_t body_rate = 0;                      // bytes a second; 0: any
    std::chrono::milliseconds write_timeout{300000};  // between two pieces of an answer
    std::chrono::milliseconds linger_timeout{1000};   // for the peer to close behind an answer
    RecyclingRules recycling;
    std::chrono::milliseconds stop_timeout{30000};
    std::chrono::milliseconds reload_timeout{0};  // 0: none
    std::chrono::milliseconds start_timeout{30000};
    std::optional<int> ready_fd;  // told when all is ready
    LogLevel log_level = LogLevel::notice;
    std::string log = "stderr";  // or "syslog", or the full path of a file
    LogFormat log_format = LogFormat::text;
    ChildOutputMode child_output = ChildOutputMode::log;
    std::size_t child_output_line = 16384;  // the longest, in bytes
    std::string control;                    // the path of the control socket; "none"; empty: the default one
    std::string agent;                      // empty: beside the executable, or in the library directory
    std::vector<std::string> command;

    // Each setting as it was given, by its option's name, in order: with the command, enough to make this
    // configuration again (config_of()).
    std::vector<std::pair<std::string, std::string>> settings;

    // Where each setting came from, for messages: "--user", or "/etc/cede.conf:3: user". Ask where().
    std::map<std::string, std::string, std::less<>> origins;
};

// Variables by name, of which some supply defaults (pm/environment_defaults.h, CEDE_CHILD).
using Environment = std::map<std::string, std::string, std::less<>>;

// How many children, by the options that say so together; php-fpm's rules. Exit status 2.
std::expected<Sizes, Error> sizes_of(const Config& config);

// What the options for waiting say together. Exit status 2.
std::expected<void, Error> check_waiting(const Config& config);

// The configuration that has these settings and this command, with what the environment says besides. What is
// no option any more, or no value of one, is left out and named in `dropped`.
Config config_of(const std::vector<std::pair<std::string, std::string>>& settings,
                 const std::vector<std::string>& command, const Environment& environment,
                 std::vector<std::string>& dropped);

// The place that `option` was set at; "--option" when it was not. For `listen`, `value` says which.
std::string where(const Config& config, std::string_view option, std::string_view value = {});

enum class Mode { run, check, help, version };

struct Invocation {
    Mode mode = Mode::run;
    Config config;
    std::string text;  // what --help or --version print, with a final line feed; else empty
};

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
