// SPDX-License-Identifier: Apache-2.0
// The status as people read it.
#include <algorithm>
#include <cmath>
#include <iterator>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "pm/status.h"

namespace cede::pm {
namespace {

namespace json = boost::json;

const json::object& object_in(const json::object& object, json::string_view key) {
    static const json::object none;
    const json::value* const found = object.if_contains(key);
    return found != nullptr && found->is_object() ? found->get_object() : none;
}

const json::array& array_in(const json::object& object, json::string_view key) {
    static const json::array none;
    const json::value* const found = object.if_contains(key);
    return found != nullptr && found->is_array() ? found->get_array() : none;
}

std::string text_in(const json::object& object, json::string_view key) {
    const json::value* const found = object.if_contains(key);
    if (found == nullptr || !found->is_string()) {
        return {};
    }
    std::string text = for_terminal({found->get_string().data(), found->get_string().size()});
    std::ranges::replace(text, '\n', ' ');
    return text;
}

std::uint64_t number_in(const json::object& object, json::string_view key) {
    const json::value* const found = object.if_contains(key);
    boost::system::error_code error;
    const auto number = found == nullptr ? 0 : found->to_number<std::uint64_t>(error);
    return error ? 0 : number;
}

// Anything that is no number is -1.
double real_in(const json::object& object, json::string_view key) {
    const json::value* const found = object.if_contains(key);
    boost::system::error_code error;
    const double number = found == nullptr ? -1 : found->to_number<double>(error);
    return error || std::isnan(number) ? -1 : number;
}

// "12d 3h", "4h 5m", "6m 7s", "8.9s": the two largest units.
std::string duration_in(const json::object& object, json::string_view key) {
    const double seconds = real_in(object, key);
    constexpr double longest = 1e12;
    if (seconds < 0 || seconds >= longest) {
        return "-";
    }
    const auto whole = static_cast<std::uint64_t>(seconds);
    constexpr std::uint64_t minute = 60;
    constexpr std::uint64_t hour = 60 * minute;
    constexpr std::uint64_t day = 24 * hour;
    if (whole < minute) {
        return fmt::format("{:.1f}s", std::floor(seconds * 10) / 10);
    }
    if (whole < hour) {
        return fmt::format("{}m {}s", whole / minute, whole % minute);
    }
    return whole < day ? fmt::format("{}h {}m", whole / hour, whole % hour / minute)
                       : fmt::format("{}d {}h", whole / day, whole % day / hour);
}

std::string counted(std::uint64_t number, std::string_view one, std::string_view many) {
    return fmt::format("{} {}", number, number == 1 ? one : many);
}

std::string head(const json::object& status) {
    const std::string title = text_in(status, "title");
    return fmt::format("cede {} pid {}{}: {} for {}, generation {}, {}, pm {}\n", text_in(status, "version"),
                       number_in(status, "pid"), title.empty() ? "" : " [" + title + "]",
                       text_in(status, "state"), duration_in(status, "uptime_s"),
                       number_in(status, "generation"), text_in(status, "protocol"), text_in(status, "pm"));
}

std::string listening(const json::object& status) {
    std::string lines;
    for (const json::value& value : array_in(status, "listeners")) {
        if (value.is_object()) {
            const json::object& listener = value.get_object();
            lines += fmt::format("  listening    {}, {} of {} in its queue", text_in(listener, "address"),
                                 number_in(listener, "queue"), number_in(listener, "backlog"));
            if (number_in(listener, "times_full") > 0) {
                lines += fmt::format(", was full {} for {}",
                                     counted(number_in(listener, "times_full"), "time", "times"),
                                     duration_in(listener, "full_s"));
            }
            lines += '\n';
        }
    }
    return lines;
}

std::string children(const json::object& status) {
    const json::object& children = object_in(status, "children");
    std::string states;
    for (const auto& [state, count] : object_in(children, "by_state")) {
        const std::uint64_t number = number_in(object_in(children, "by_state"), state);
        if (number > 0) {
            states += fmt::format("{}{} {}", states.empty() ? ": " : ", ", number,
                                  for_terminal({state.data(), state.size()}));
        }
    }
    const std::uint64_t leaving = number_in(children, "leaving");
    return fmt::format("  children     {} of {}{}{}\n", number_in(children, "total"),
                       number_in(children, "limit"), states,
                       leaving > 0 ? fmt::format(" ({} told to end)", leaving) : "");
}

std::string connections(const json::object& status) {
    const json::object& waiting = object_in(status, "waiting");
    const json::object& connections = object_in(status, "connections");
    const std::string mark = text_in(waiting, "mark");
    const std::uint64_t queued = number_in(waiting, "queued");
    const std::uint64_t handed = number_in(waiting, "handed");
    return fmt::format(
        "  waiting      {}{}{}\n  parked       {}{}\n",
        queued + handed == 0 ? "nobody" : fmt::format("{} new, {} parked with a request", queued, handed),
        mark == "pressure" ? "; no child is free or idle" : "",
        number_in(waiting, "longest") > 0
            ? fmt::format(" (at the most {} new)", number_in(waiting, "longest"))
            : "",
        counted(number_in(connections, "parked"), "connection", "connections"),
        number_in(connections, "leaving") > 0
            ? fmt::format(", {} being closed", number_in(connections, "leaving"))
            : "");
}

// "0.004s", for what is mostly short.
std::string brief_in(const json::object& object, json::string_view key) {
    const double seconds = real_in(object, key);
    constexpr double minute = 60;
    return seconds >= 0 && seconds < minute ? fmt::format("{:.3f}s", seconds) : duration_in(object, key);
}

// The counts of each bucket for itself, those without any left out.
std::string histogram(const json::object& waits) {
    std::string line;
    std::uint64_t before = 0;
    for (const json::value& value : array_in(waits, "buckets")) {
        if (!value.is_object()) {
            continue;
        }
        const json::object& bucket = value.get_object();
        const std::uint64_t sum = number_in(bucket, "count");
        const double le = real_in(bucket, "le");
        if (sum > before) {
            line += fmt::format("{}{} {}", line.empty() ? "" : ", ", sum - before,
                                le < 0 ? std::string{"longer"} : fmt::format("up to {:g}s", le));
        }
        before = std::max(before, sum);
    }
    return line;
}

std::string waits(const json::object& status) {
    std::string lines;
    const json::object& recent = object_in(status, "last_second");
    if (!recent.empty()) {
        constexpr double percent = 100;
        lines +=
            fmt::format("  last second  {:.1f} requests, {:.0f}% waited; {} on average, {} at the longest\n",
                        std::max(0.0, real_in(recent, "requests")),
                        percent * std::clamp(real_in(recent, "waited_share"), 0.0, 1.0),
                        brief_in(recent, "mean_wait_s"), brief_in(recent, "longest_wait_s"));
    }
    const json::object& waits = object_in(status, "waits");
    if (const std::string line = histogram(waits); !line.empty()) {
        lines += fmt::format("  waited       {}; {} at the longest\n", line, brief_in(waits, "longest_s"));
    }
    const json::object& saturation = object_in(status, "saturation");
    if (number_in(saturation, "times") > 0) {
        lines += fmt::format(
            "  saturated    {}, for {}: {} had to wait{}\n",
            counted(number_in(saturation, "times"), "time", "times"), duration_in(saturation, "total_s"),
            counted(number_in(saturation, "requests"), "request", "requests"),
            saturation.contains("since_s") ? "; now, since " + duration_in(saturation, "since_s") : "");
    }
    const json::object& totals = object_in(status, "totals");
    const auto of = [&totals](json::string_view key) { return number_in(totals, key); };
    if (of("abandoned") + of("overdue") + of("bodies_timed_out") + of("writes_timed_out") > 0) {
        lines += fmt::format(
            "  not served   {} left while they waited, {} waited too long, {} sent too "
            "slowly, {} did not read\n",
            of("abandoned"), of("overdue"), of("bodies_timed_out"), of("writes_timed_out"));
    }
    return lines;
}

std::string totals(const json::object& status) {
    const json::object& totals = object_in(status, "totals");
    const auto of = [&totals](json::string_view key) { return number_in(totals, key); };
    std::string lines = fmt::format(
        "  served       {} on {} new and {} parked connections, {} refused\n"
        "  given up     {} parked, {} closed, {} asked for; {} closed for room, {} left while parked\n"
        "  processes    {} started, {} ended, {} of them killed; {}, {}\n",
        counted(of("requests"), "request", "requests"), of("accepted"), of("taken"), of("refused"),
        of("parked"), of("closed"), of("give_ups_asked"), of("closed_for_room"), of("peers_gone"),
        of("children_started"), of("children_ended"), of("children_killed"),
        counted(of("reloads"), "reload", "reloads"), counted(of("upgrades"), "upgrade", "upgrades"));
    if (of("lost_log_lines") > 0) {
        lines += fmt::format("  log          {} lost\n", counted(of("lost_log_lines"), "line", "lines"));
    }
    const json::object& reload = object_in(status, "last_reload");
    if (!reload.empty()) {
        const json::value* const ok = reload.if_contains("ok");
        constexpr double latest = 1e11;  // some thousand years
        const auto at = static_cast<std::time_t>(std::clamp(real_in(reload, "at"), 0.0, latest));
        lines += fmt::format("  last reload  {:%Y-%m-%d %H:%M:%S} UTC, {} after {}: {}\n", fmt::gmtime(at),
                             ok != nullptr && ok->is_bool() && ok->get_bool() ? "done" : "failed",
                             duration_in(reload, "duration_s"), text_in(reload, "message"));
    }
    return lines;
}

std::string processes(const json::object& status) {
    std::string lines;
    for (const json::value& value : array_in(status, "processes")) {
        if (!value.is_object()) {
            continue;
        }
        const json::object& child = value.get_object();
        const json::value* const leaving = child.if_contains("leaving");
        if (lines.empty()) {
            lines = fmt::format("\n  {:>5} {:>8} {:>4} {:<10} {:>10} {:>9} {:>9}\n", "CHILD", "PID", "GEN",
                                "STATE", "REQUESTS", "AGE", "IDLE");
        }
        lines += fmt::format(
            "  {:>5} {:>8} {:>4} {:<10} {:>10} {:>9} {:>9}{}\n", number_in(child, "slot"),
            number_in(child, "pid"), number_in(child, "generation"), text_in(child, "state"),
            number_in(child, "requests"), duration_in(child, "age_s"), duration_in(child, "idle_s"),
            leaving != nullptr && leaving->is_bool() && leaving->get_bool() ? " to end" : "");
    }
    return lines;
}

}  // namespace

std::string for_terminal(std::string_view text) {
    constexpr unsigned char first_printable = 0x20;
    constexpr unsigned char del = 0x7f;
    std::string safe{text};
    std::ranges::replace_if(
        safe,
        [](char c) {
            const auto byte = static_cast<unsigned char>(c);
            return c != '\n' && (byte < first_printable || byte == del);
        },
        '?');
    return safe;
}

std::expected<std::string, std::string> status_text(std::string_view json_text) {
    boost::system::error_code error;
    const json::value value = json::parse({json_text.data(), json_text.size()}, error);
    if (error || !value.is_object()) {
        return std::unexpected{"the answer is no JSON object"};
    }
    const json::object& status = value.get_object();
    return head(status) + listening(status) + children(status) + connections(status) + waits(status) +
           totals(status) + processes(status);
}

}  // namespace cede::pm
