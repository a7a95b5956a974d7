// SPDX-License-Identifier: Apache-2.0
#include "pm/status.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "children/scoreboard.h"

namespace cede::pm {
namespace {

namespace json = boost::json;

// Three digits behind the point are enough for a person, and for a graph.
double thousandths(double number) {
    return std::round(number * 1000) / 1000;
}

double seconds(Status::Seconds duration) {
    return thousandths(duration.count());
}

json::string text(std::string_view view) {
    return json::string{view.data(), view.size()};
}

json::array listeners_of(const Status& status) {
    json::array listeners;
    for (const Status::Listener& listener : status.listeners) {
        listeners.emplace_back(json::object{{"address", text(listener.address)},
                                            {"queue", listener.queue},
                                            {"backlog", listener.backlog},
                                            {"backlog_asked", listener.backlog_asked},
                                            {"full_s", seconds(listener.full)},
                                            {"times_full", listener.times_full}});
    }
    return listeners;
}

json::object children_of(const Status& status) {
    json::object by_state;
    for (const std::string_view state : child_states()) {
        by_state[json::string_view{state.data(), state.size()}] =
            std::ranges::count(status.children, state, &Status::Child::state);
    }
    json::object children{{"limit", status.limit},
                          {"total", status.children.size()},
                          {"leaving", std::ranges::count(status.children, true, &Status::Child::leaving)},
                          {"by_state", std::move(by_state)}};
    if (status.wanted) {
        children["wanted"] = *status.wanted;
    }
    return children;
}

json::array processes_of(const Status& status) {
    json::array processes;
    for (const Status::Child& child : status.children) {
        json::object process{
            {"slot", child.slot},         {"pid", child.pid},         {"generation", child.generation},
            {"state", text(child.state)}, {"leaving", child.leaving}, {"requests", child.requests},
            {"age_s", seconds(child.age)}};
        if (child.idle) {
            process["idle_s"] = seconds(*child.idle);
        }
        if (child.rss) {
            process["rss"] = *child.rss;
        }
        processes.emplace_back(std::move(process));
    }
    return processes;
}

// As Prometheus has its histograms: each bucket counts those of all before it, too.
json::object waits_of(const Counts& counts) {
    json::array buckets;
    std::uint64_t sum = 0;
    constexpr double milliseconds = 1000;
    for (std::size_t i = 0; i < counts.waits.size(); ++i) {
        sum += counts.waits[i];
        json::value le = "+Inf";
        if (i < std::size(children::wait_bounds_ms)) {
            le = children::wait_bounds_ms[i] / milliseconds;
        }
        buckets.emplace_back(json::object{{"le", std::move(le)}, {"count", sum}});
    }
    return {{"buckets", std::move(buckets)},
            {"count", sum},
            {"sum_s", seconds(std::chrono::duration<double, std::micro>{counts.waited_us})},
            {"longest_s", seconds(std::chrono::duration<double, std::micro>{counts.longest_wait_us})}};
}

json::value recent_of(const Status& status) {
    if (!status.recent) {
        return nullptr;
    }
    return json::object{{"requests", thousandths(status.recent->requests_a_second)},
                        {"waited_share", thousandths(status.recent->waited_share)},
                        {"mean_wait_s", seconds(status.recent->mean_wait)},
                        {"longest_wait_s", seconds(status.recent->longest_wait)}};
}

json::object saturation_of(const Status::Saturation& saturation) {
    json::object object{{"now", saturation.since.has_value()},
                        {"total_s", seconds(saturation.lasted)},
                        {"times", saturation.times},
                        {"requests", saturation.requests},
                        {"moments", saturation.moments}};
    if (saturation.since) {
        object["since_s"] = seconds(*saturation.since);
    }
    return object;
}

// What becomes of requests that no child gets to see counts as if a child had done it.
json::object totals_of(const Status& status) {
    const Counts& counts = status.totals;
    const Totals::Events& own = status.events;
    return {{"requests", counts.requests},
            {"accepted", counts.accepted},
            {"taken", counts.taken},
            {"parked", counts.parked},
            {"closed", counts.closed},
            {"refused", counts.refused + own.heads_too_slow},
            {"timed_out", counts.timed_out + own.heads_too_slow},
            {"begun", counts.begun},
            {"abandoned", counts.abandoned + own.abandoned},
            {"overdue", counts.overdue + own.overdue},
            {"pings", counts.pings + own.pings},
            {"bodies_timed_out", counts.bodies_timed_out + own.bodies_too_slow},
            {"writes_timed_out", counts.writes_timed_out},
            {"busy_s", seconds(std::chrono::duration<double, std::micro>{counts.busy_us})},
            {"silent_closed", own.silent_closed},
            {"pulled", own.pulled},
            {"children_started", status.events.started},
            {"children_ended", status.events.ended},
            {"children_killed", status.events.killed},
            {"children_killed_for_memory", status.events.killed_for_memory},
            {"children_not_started", status.events.not_started},
            {"give_ups_asked", status.events.give_ups_asked},
            {"closed_for_room", status.events.closed_for_room},
            {"peers_gone", status.events.peers_gone},
            {"reloads", status.events.reloads},
            {"upgrades", status.events.upgrades},
            {"lost_log_lines", status.events.lost_log_lines}};
}

json::value reload_of(const Status& status) {
    if (!status.last_reload) {
        return nullptr;
    }
    const auto at = status.last_reload->at.time_since_epoch();
    return json::object{{"at", std::chrono::floor<std::chrono::seconds>(at).count()},
                        {"duration_s", seconds(status.last_reload->duration)},
                        {"ok", status.last_reload->good},
                        {"message", text(status.last_reload->message)}};
}

}  // namespace

std::vector<std::string_view> child_states() {
    std::vector<std::string_view> states;
    // An empty slot has no child.
    for (std::uint32_t state = 1; state <= children::last_child_state; ++state) {
        states.emplace_back(children::name_of(children::ChildState{state}));
    }
    states.emplace_back("unknown");
    return states;
}

std::string status_json(const Status& status) {
    std::uint64_t queued = 0;
    for (const Status::Listener& listener : status.listeners) {
        queued += listener.queue;
    }
    json::object object{{"version", text(status.version)},
                        {"pid", status.pid},
                        {"title", text(status.title)},
                        {"state", text(status.course)},
                        {"uptime_s", seconds(status.uptime)},
                        {"generation", status.generation},
                        {"protocol", text(status.protocol)},
                        {"pm", text(status.pool_mode)},
                        {"listeners", listeners_of(status)},
                        {"children", children_of(status)},
                        {"waiting", json::object{{"queued", queued},
                                                 {"longest", status.events.longest_queue},
                                                 {"oldest_s", seconds(status.oldest)},
                                                 {"handed", status.handed},
                                                 {"mark", text(status.pressure)}}},
                        {"waits", waits_of(status.totals)},
                        {"last_second", recent_of(status)},
                        {"saturation", saturation_of(status.saturation)},
                        {"connections", json::object{{"parked", status.parked}, {"leaving", status.leaving}}},
                        {"totals", totals_of(status)},
                        {"last_reload", reload_of(status)},
                        {"processes", processes_of(status)}};
    if (status.backlog_auto) {
        // With parentheses: in braces it would be an array.
        object["capacity"] = status.capacity ? json::value(thousandths(*status.capacity)) : nullptr;
    }
    return json::serialize(object);
}

}  // namespace cede::pm
