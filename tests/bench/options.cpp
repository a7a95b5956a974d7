// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace cede::bench {

namespace {

constexpr std::array<std::pair<std::string_view, Mode>, 6> modes{{
    {"closed", Mode::closed},
    {"burst", Mode::burst},
    {"bursts", Mode::bursts},
    {"rate", Mode::rate},
    {"new-connection", Mode::new_connection},
    {"idle", Mode::idle},
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
        throw UsageError("mode " + std::string{text} +
                         ": give closed, burst, bursts, rate, new-connection or idle");
    }
    return found->second;
}

bool set_workload(Options& options, std::string_view name, std::string_view value) {
    if (name == "--pools") {
        options.pools = count(name, value, 1'000);
    } else if (name == "--max-connections") {
        options.max_connections = count(name, value, 10'000);
    } else if (name == "--clients") {
        options.clients = count(name, value, 50'000);
    } else if (name == "--children") {
        options.children = count(name, value, 10'000);
    } else if (name == "--idle") {
        options.idle = count(name, value, 100'000);
    } else if (name == "--rounds") {
        options.rounds = count(name, value, 100'000);
    } else if (name == "--bursts") {
        options.bursts = count(name, value, 1'000);
    } else if (name == "--requests") {
        options.requests = number<std::uint64_t>(name, value, 1, 1'000'000'000);
    } else if (name == "--rate") {
        options.rate = number<double>(name, value, 0.01, 1'000'000);
    } else if (name == "--every") {
        options.every = seconds(name, value, 0.01);
    } else if (name == "--duration") {
        options.duration = seconds(name, value, 0.01);
    } else if (name == "--warmup") {
        options.warmup = seconds(name, value, 0);
    } else if (name == "--patience") {
        options.patience = seconds(name, value, 0.01);
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
    } else if (name == "--expect") {
        options.expect = value;
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
    return options;
}

const char* usage() noexcept {
    return R"(usage: cede-load MODE --address ADDRESS --script FILE [options]

Sends requests as web-server workers with a keep-alive pool each do, and prints one
JSON object. A request takes the connection of its own worker that has been idle for
the shortest time, else opens a new one. FastCGI is spoken as nginx does: a request
on a reused connection that is closed before the answer's first byte is sent again,
once. LSAPI is spoken as OpenLiteSpeed does: a worker has at most --max-connections,
further requests wait in its queue; a connect may take 2 s; a request whose
connection is lost is sent again, three times in all; CONN_CLOSE is obeyed.

modes
  closed          --clients clients, each with one request under way
  burst           --clients requests at once, until all are served or given up
  bursts          --bursts bursts of --clients requests, --every seconds apart, beside
                  --rate requests a second of --other-script for --duration
  rate            --rate requests a second for --duration; latency counts from the
                  moment at which a request was due
  new-connection  per round: --children kept connections make a request each (of
                  --other-script) so that every child is connected and idle, then one
                  new connection makes one; its time is reported
  idle            --idle kept connections that made one request each, --clients
                  clients in a closed loop beside them, then one more request on each
  The last two leave the rest out when a server serves none, or for too long too few.

options
  --protocol NAME       fastcgi or lsapi; fastcgi
  --address ADDRESS     127.0.0.1:PORT, [::1]:PORT, /path or uds://path
  --script FILE         SCRIPT_FILENAME
  --other-script FILE   see modes; default: the same
  --expect TEXT         the body of every answer to --script; default: any
  --keep-alive on|off   pools (and KEEP_CONN), or a connection per request, which with
                        lsapi is closed from this side; on
  --pools N             web-server workers; 8
  --max-connections N   of a worker; fastcgi: no limit, lsapi: 10. The idle ones of idle
                        and those of new-connection come on top
  --clients N           clients, spread over the pools; 1
  --duration S          5
  --requests N          closed: stop after this many instead
  --warmup S            closed, idle: not counted, before the duration; 0
  --patience S          the client gives up after this time; with lsapi its worker sends
                        ABORT_REQUEST and closes; 10
  --bursts N --every S  5, 20
  --rate R              5
  --children N          10
  --rounds N            100
  --idle N              10000
)";
}

}  // namespace cede::bench
