// SPDX-License-Identifier: Apache-2.0
#include "pm/option_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>
#include <utility>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>

#include "pm/address.h"
#include "pm/child_environment.h"
#include "pm/config_value.h"
#include "pm/limits.h"
#include "pm/surroundings.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

using std::chrono::milliseconds;
using Assigned = std::expected<void, std::string>;

template <typename Target, typename Parsed>
Assigned store(Target& target, Parsed&& parsed) {
    if (!parsed) {
        return std::unexpected(std::move(parsed.error()));
    }
    target = *std::forward<Parsed>(parsed);
    return {};
}

Assigned store_backlog(Config& config, const std::string& value) {
    config.backlog_auto = value == "auto";
    if (config.backlog_auto) {
        return {};
    }
    const auto parsed = parse_number(value, 1, limits::largest_backlog);
    if (!parsed) {
        return std::unexpected(parsed.error() + ", or auto");
    }
    config.backlog = static_cast<int>(*parsed);
    return {};
}

Assigned add_listen(Config& config, const std::string& value) {
    if (const auto address = parse_address(value); !address) {
        return std::unexpected(address.error().message);
    }
    if (config.listen.size() == limits::most_listeners) {
        return std::unexpected(
            fmt::format("there are more than {} addresses; remove some", limits::most_listeners));
    }
    config.listen.push_back(value);
    return {};
}

// A time where 0 means none.
Assigned store_limit(milliseconds& target, const std::string& value) {
    return store(target, parse_time(value, milliseconds{0}));
}

Assigned store_count(std::optional<unsigned>& target, const std::string& value) {
    return store(target, parse_number(value, 0, limits::most_children));
}

Assigned store_time(std::optional<std::chrono::steady_clock::duration>& target, const std::string& value) {
    return store(target, parse_time(value, milliseconds{100}));
}

Assigned add_variable(Config& config, const std::string& value) {
    auto variable = parse_variable(value);
    if (!variable) {
        return std::unexpected(variable.error());
    }
    config.environment.set.insert_or_assign(std::move(variable->first), std::move(variable->second));
    return {};
}

Assigned store_output_line(Config& config, const std::string& value) {
    const auto parsed = parse_size(value);
    if (!parsed) {
        return std::unexpected(parsed.error());
    }
    if (*parsed < limits::shortest_output_line || *parsed > limits::longest_output_line) {
        return std::unexpected(fmt::format("{} is out of range; give {} to {} bytes", quoted(value),
                                           limits::shortest_output_line, limits::longest_output_line));
    }
    config.child_output_line = static_cast<std::size_t>(*parsed);
    return {};
}

constexpr auto store_text = [](std::string& target, const std::string& value) -> Assigned {
    target = value;
    return {};
};

constexpr std::array table{
    Option{"listen", "ADDRESS",
           "where to listen: 127.0.0.1:9000, [::1]:9000, *:9000, /run/x.sock; may be given several times. "
           "Without it: the sockets that systemd handed over (LISTEN_FDS), else the one on descriptor 0",
           add_listen, true},
    Option{"listen-mode", "MODE", "permissions of a socket file, octal (0660)",
           [](Config& c, const std::string& v) { return store(c.listen_mode, parse_mode(v)); }},
    Option{"listen-owner", "USER", "owner of a socket file (who starts cede)",
           [](Config& c, const std::string& v) { return store_text(c.listen_owner, v); }},
    Option{"listen-group", "GROUP", "group of a socket file (that of --user)",
           [](Config& c, const std::string& v) { return store_text(c.listen_group, v); }},
    Option{"backlog", "N|auto",
           "how many connections may wait in the kernel's queue; auto: as many as are served within "
           "--max-wait (511)",
           store_backlog},
    Option{"protocol", "auto|fastcgi|lsapi", "what the children speak (auto: php-cgi FastCGI, lsphp LSAPI)",
           [](Config& c, const std::string& v) { return store(c.protocol, parse_protocol(v)); }},
    Option{"pm", "static|dynamic|ondemand",
           "when children are started: always as many as --children (static); some spare ones are kept; only "
           "for what waits",
           [](Config& c, const std::string& v) { return store(c.pool_mode, parse_pool_mode(v)); }},
    Option{"children", "N",
           "how many children, at the most if there is --pm; also --max-children (from the environment: "
           "PHP_LSAPI_CHILDREN, LSAPI_CHILDREN or "
           "PHP_FCGI_CHILDREN; else 5)",
           [](Config& c, const std::string& v) {
               return store(c.children, parse_number(v, 1, limits::most_children));
           }},
    Option{"start-servers", "N", "dynamic: how many at the start (between the spare ones allowed)",
           [](Config& c, const std::string& v) { return store_count(c.start_servers, v); }},
    Option{"min-spare", "N", "dynamic: how many at the least are kept for what may come (1)",
           [](Config& c, const std::string& v) { return store_count(c.min_spare, v); }},
    Option{"max-spare", "N", "dynamic: how many more than were needed lately are kept (a quarter)",
           [](Config& c, const std::string& v) { return store_count(c.max_spare, v); }},
    Option{"idle-timeout", "TIME", "dynamic, ondemand: how long what was needed is remembered (10s)",
           [](Config& c, const std::string& v) {
               return store(c.idle_timeout, parse_time(v, milliseconds{100}));
           }},
    Option{"max-spawn-rate", "N",
           "dynamic, ondemand: how many that nobody waits for are started in a second at the most (32)",
           [](Config& c, const std::string& v) {
               return store(c.max_spawn_rate, parse_number(v, 1, limits::most_children));
           }},
    Option{"spawn", "zygote|exec",
           "children are forked from a process in which PHP has started, or each is executed by itself, for "
           "extensions that start threads (zygote)",
           [](Config& c, const std::string& v) { return store(c.spawn, parse_spawn_mode(v)); }},
    Option{"user", "USER", "whom the children run as; needed when cede is started by root",
           [](Config& c, const std::string& v) { return store_text(c.user, v); }},
    Option{"group", "GROUP", "their group (that of --user)",
           [](Config& c, const std::string& v) { return store_text(c.group, v); }},
    Option{"allow-root", "", "let the children run as root",
           [](Config& c, const std::string& v) { return store(c.allow_root, parse_yes_or_no(v)); }},
    Option{"chroot", "DIR",
           "the children's root directory, in which the command is looked up; needs /proc there",
           [](Config& c, const std::string& v) { return store(c.chroot, parse_directory(v)); }},
    Option{"chdir", "DIR", "their working directory, inside --chroot (that of cede, or / with --chroot)",
           [](Config& c, const std::string& v) { return store(c.chdir, parse_directory(v)); }},
    Option{"umask", "OCTAL", "their file mode creation mask (that of cede)",
           [](Config& c, const std::string& v) { return store(c.umask, parse_umask(v)); }},
    Option{"nice", "N", "their priority, from -20 (before all others) to 19 (that of cede)",
           [](Config& c, const std::string& v) { return store(c.nice, parse_nice(v)); }},
    Option{"rlimit-nofile", "N", "how many files each of them may have open (as cede was started)",
           [](Config& c, const std::string& v) { return store(c.rlimit_nofile, parse_descriptor_limit(v)); }},
    Option{"rlimit-core", "BYTES|unlimited", "how large a core file of theirs may be (as cede was started)",
           [](Config& c, const std::string& v) { return store(c.rlimit_core, parse_core_limit(v)); }},
    Option{"env", "NAME=VALUE",
           "a variable in their environment, '$OTHER' as the value: what cede's own OTHER has; may be given "
           "several times",
           add_variable, true},
    Option{"clear-env", "", "their environment has nothing but what --env says",
           [](Config& c, const std::string& v) { return store(c.environment.clear, parse_yes_or_no(v)); }},
    Option{"title", "TEXT",
           "shown by ps behind the names of supervisor and zygote, as in 'cede: supervisor [TEXT]'",
           [](Config& c, const std::string& v) { return store(c.title, parse_title(v)); }},
    Option{"give-up", "park|close",
           "what happens to an idle connection whose child is needed elsewhere: kept open by cede, or closed "
           "(park)",
           [](Config& c, const std::string& v) { return store(c.give_up, parse_give_up(v)); }},
    Option{
        "keepalive-limit", "N|P%",
        "how many children, or what share of them, may keep a connection after a response (all)",
        [](Config& c, const std::string& v) { return store(c.keepalive_limit, parse_keepalive_limit(v)); }},
    Option{"max-parked", "N", "how many parked connections; beyond it the longest-parked is closed (16384)",
           [](Config& c, const std::string& v) {
               return store(c.max_parked, parse_number(v, 0, limits::most_parked));
           }},
    Option{"max-requests", "N",
           "how many requests a child serves before another takes its place, 0: no limit (from the "
           "environment: PHP_LSAPI_MAX_REQUESTS, LSAPI_MAX_REQS or PHP_FCGI_MAX_REQUESTS; else 0)",
           [](Config& c, const std::string& v) {
               return store(c.max_requests, parse_number(v, 0, std::numeric_limits<unsigned>::max()));
           }},
    Option{"max-age", "TIME", "how long a child serves before another takes its place (no limit)",
           [](Config& c, const std::string& v) { return store_time(c.recycling.max_age, v); }},
    Option{"max-rss", "SIZE", "how much memory (64M, 1G) a child may have before another takes its place",
           [](Config& c, const std::string& v) { return store(c.recycling.max_rss, parse_size(v)); }},
    Option{"max-idle", "TIME", "how long a child may be without a request before it ends (no limit)",
           [](Config& c, const std::string& v) { return store_time(c.recycling.max_idle, v); }},
    Option{"recycle-jitter", "P%",
           "how much of --max-requests and --max-age is taken off by chance, so that children do not end "
           "together (10%)",
           [](Config& c, const std::string& v) -> Assigned {
               const std::string_view digits = std::string_view{v}.substr(0, v.size() - v.ends_with('%'));
               return store(c.recycling.jitter_percent, parse_number(digits, 0, 50));
           }},
    Option{"request-timeout", "TIME",
           "how long a request may run before its child is ended, 0: no limit (from the environment: "
           "LSAPI_MAX_PROCESS_TIME in seconds; else 0)",
           [](Config& c, const std::string& v) {
               return store(c.request_timeout, parse_time(v, milliseconds{0}));
           }},
    Option{"request-timeout-track-finished", "",
           "--request-timeout also for a script that goes on behind its answer (fastcgi_finish_request())",
           [](Config& c, const std::string& v) {
               return store(c.request_timeout_track_finished, parse_yes_or_no(v));
           }},
    Option{"max-wait", "TIME",
           "how long a request may wait for a child before it is refused with a 503, 0: no limit (0)",
           [](Config& c, const std::string& v) { return store_limit(c.max_wait, v); }},
    Option{"overload", "fifo|lifo|reject",
           "when requests wait longer than --max-wait: the oldest is served first, the newest, or who "
           "comes is refused at once (fifo)",
           [](Config& c, const std::string& v) { return store(c.overload, parse_overload(v)); }},
    Option{"abandoned", "drop|run",
           "what becomes of a request whose client has closed the connection before it is run (drop)",
           [](Config& c, const std::string& v) { return store(c.run_abandoned, parse_abandoned(v)); }},
    Option{"pass-queue-time", "", "scripts get the microseconds that the request has waited, CEDE_QUEUE_USEC",
           [](Config& c, const std::string& v) { return store(c.pass_queue_time, parse_yes_or_no(v)); }},
    Option{"queue-start", "NAME",
           "a variable in which the web server says when it got the request (nginx: $msec), from which "
           "its waiting counts then (none)",
           [](Config& c, const std::string& v) { return store(c.queue_start, parse_variable_name(v)); }},
    Option{"ping-path", "PATH",
           "a script name that is answered with 'pong' without PHP, even when all children are busy (none)",
           [](Config& c, const std::string& v) { return store(c.ping_path, parse_ping_path(v)); }},
    Option{"probe-reserve", "N",
           "how many children serve new connections only, and keep none, for health checks (0)",
           [](Config& c, const std::string& v) {
               return store(c.probe_reserve, parse_number(v, 0, limits::most_children));
           }},
    Option{"first-byte-timeout", "TIME",
           "how long a new connection may be silent before it is closed, 0: no limit (60s)",
           [](Config& c, const std::string& v) { return store_limit(c.first_byte_timeout, v); }},
    Option{"read-timeout", "TIME", "how long the head of a request may take to arrive, 0: no limit (60s)",
           [](Config& c, const std::string& v) { return store_limit(c.read_timeout, v); }},
    Option{"body-timeout", "TIME", "how long nothing of a request's body may come, 0: no limit (60s)",
           [](Config& c, const std::string& v) { return store_limit(c.body_timeout, v); }},
    Option{"body-rate", "SIZE",
           "how many bytes a second of a body must come on average while others wait, 0: any (0)",
           [](Config& c, const std::string& v) -> Assigned {
               if (v == "0") {
                   c.body_rate = 0;
                   return {};
               }
               return store(c.body_rate, parse_size(v));
           }},
    Option{"write-timeout", "TIME", "how long a client may read nothing of its answer, 0: no limit (300s)",
           [](Config& c, const std::string& v) { return store_limit(c.write_timeout, v); }},
    Option{"linger-timeout", "TIME",
           "how long a client may take to close its connection behind an answer (1s)",
           [](Config& c, const std::string& v) { return store_limit(c.linger_timeout, v); }},
    Option{
        "stall-timeout", "TIME",
        "how long all children may be busy, none ending a request while somebody waits, before all of them "
        "are replaced, 0: no limit (0)",
        [](Config& c, const std::string& v) {
            return store(c.stall_timeout, parse_time(v, milliseconds{0}));
        }},
    Option{"stop-timeout", "TIME", "how long a graceful stop waits for running requests (30s)",
           [](Config& c, const std::string& v) {
               return store(c.stop_timeout, parse_time(v, milliseconds{0}));
           }},
    Option{"reload-timeout", "TIME",
           "how long children of before a reload may go on with their request, 0: until it ends (0)",
           [](Config& c, const std::string& v) {
               return store(c.reload_timeout, parse_time(v, milliseconds{0}));
           }},
    Option{"start-timeout", "TIME", "how long the command may take to start (30s)",
           [](Config& c, const std::string& v) {
               return store(c.start_timeout, parse_time(v, milliseconds{1}));
           }},
    Option{"ready-fd", "N", "a descriptor that gets a line feed, and is closed, once children serve (none)",
           [](Config& c, const std::string& v) {
               const auto parsed = parse_number(v, 3, limits::largest_descriptor);
               if (!parsed) {
                   return Assigned{std::unexpected(parsed.error())};
               }
               c.ready_fd = static_cast<int>(*parsed);
               return Assigned{};
           }},
    Option{"log-level", "LEVEL", "error, warning, notice, info or debug (notice)",
           [](Config& c, const std::string& v) { return store(c.log_level, parse_log_level(v)); }},
    Option{"log", "stderr|syslog|PATH",
           "where the log goes; a file is opened anew at SIGUSR1, and when it was moved away (stderr)",
           [](Config& c, const std::string& v) { return store(c.log, parse_log_target(v)); }},
    Option{"log-format", "text|json", "lines of text, or a JSON object on each line (text)",
           [](Config& c, const std::string& v) { return store(c.log_format, parse_log_format(v)); }},
    Option{
        "control", "PATH|none",
        "the socket at which cede status, reload, stop and the like reach this pool (by --title or --listen, "
        "in RUNTIME_DIRECTORY, /run/cede, XDG_RUNTIME_DIR/cede or /tmp/cede-UID)",
        [](Config& c, const std::string& v) { return store(c.control, parse_control(v)); }},
    Option{"child-output", "log|inherit",
           "what children write to their stdout and stderr: lines of the log, or, as it is, to cede's own "
           "stderr "
           "(log)",
           [](Config& c, const std::string& v) { return store(c.child_output, parse_child_output(v)); }},
    Option{"child-output-line", "SIZE", "how long a line of it may be; the rest is left out (16K)",
           store_output_line},
    Option{"agent", "PATH", "libcede-agent.so (beside cede, or in the library directory)",
           [](Config& c, const std::string& v) { return store_text(c.agent, v); }},
};

// php-fpm's names.
constexpr std::array other_names{Alias{"max-children", "children"}};

}  // namespace

std::span<const Option> options() noexcept {
    return table;
}

std::span<const Alias> aliases() noexcept {
    return other_names;
}

const Option* find_option(std::string_view name) noexcept {
    const auto other = std::ranges::find(other_names, name, &Alias::name);
    name = other == other_names.end() ? name : other->option;
    const auto found = std::ranges::find(table, name, &Option::name);
    return found == table.end() ? nullptr : &*found;
}

std::string help_text() {
    namespace po = boost::program_options;
    po::options_description described{"Options", 100, 50};
    auto add = described.add_options();
    const auto describe = [&add](std::string_view name, std::string_view argument, std::string_view help) {
        const std::string name_text{name};
        const std::string help_text{help};
        if (argument.empty()) {
            add(name_text.c_str(), help_text.c_str());
        } else {
            add(name_text.c_str(), po::value<std::string>()->value_name(std::string{argument}),
                help_text.c_str());
        }
    };
    describe("config", "FILE",
             "read more settings from FILE: lines 'name = value' with these names, and 'command = ...'; "
             "the command line goes first");
    for (const Option& option : table) {
        describe(option.name, option.argument, option.help);
    }
    describe("help", "", "print this");
    describe("version", "", "print the version");
    std::ostringstream out;
    out << "Usage: cede [run] [OPTIONS] -- COMMAND [ARGUMENTS]\n"
           "       cede check [OPTIONS] -- COMMAND [ARGUMENTS]\n"
           "       cede status [--json] [POOL]\n"
           "       cede reload | stop [--fast] | upgrade | reopen | children N [POOL]\n\n"
           "Runs a pool of FastCGI or LSAPI children, of php-cgi or lsphp, whose idle connections never\n"
           "hold a child that somebody else needs. 'check' validates and starts nothing.\n\n"
        << "The others are for a pool that runs: they wait until it is done and say how it ended. POOL is\n"
           "--control PATH, --title TEXT or --listen ADDRESS as the pool was given it, and not needed where\n"
           "there is only one; with --timeout TIME they do not wait longer.\n\n"
        << described
        << "\nTimes: 30, 30s, 500ms, 2m, 1h. Exit status: 0 success, 1 failure, 2 wrong usage.\n"
           "Example: cede --listen 127.0.0.1:9000 --children 10 --user www-data -- /usr/bin/php-cgi8.2\n";
    return out.str();
}

}  // namespace cede::pm
