// SPDX-License-Identifier: Apache-2.0
#include "pm/status.h"

#include <string>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

namespace json = boost::json;

Status some_status() {
    Status status;
    status.version = "1.2.3";
    status.pid = 4711;
    status.title = "www";
    status.course = "serving";
    status.uptime = 90061s;
    status.generation = 2;
    status.protocol = "fastcgi";
    status.pool_mode = "dynamic";
    status.limit = 10;
    status.listeners = {{"127.0.0.1:9000", 7, 511}, {"/run/a.sock", 1, 128}};
    status.children = {{0, 100, 1, "busy", true, 5, 61s, {}, 4096},
                       {1, 101, 2, "idle", false, 6, 3s, 1500ms, {}},
                       {4, 102, 2, "busy", false, 0, 7200s, {}, {}}};
    status.handed = 3;
    status.pressure = "pressure";
    status.parked = 40;
    status.totals = {1000, 20, 30, 29, 1, 2, 1};
    status.events = {9, 6, 1, 4, 1, 0, 0, 0, 0, 12};
    return status;
}

json::object parsed(const Status& status) {
    return json::parse(status_json(status)).as_object();
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the states of a status add up to its children") {
    const json::object children = parsed(some_status()).at("children").as_object();
    CHECK(children.at("total").to_number<int>() == 3);
    CHECK(children.at("limit").to_number<int>() == 10);
    CHECK(children.at("leaving").to_number<int>() == 1);
    CHECK(children.at("by_state").at("busy").to_number<int>() == 2);
    CHECK(children.at("by_state").at("idle").to_number<int>() == 1);
    CHECK_FALSE(children.contains("wanted"));
    int sum = 0;
    for (const auto& [state, count] : children.at("by_state").as_object()) {
        sum += count.to_number<int>();
    }
    CHECK(sum == 3);
}

TEST_CASE("every state has its word, and a slot that says nonsense has one, too") {
    const auto states = child_states();
    CHECK(states.front() == "starting");
    CHECK(states.back() == "unknown");
    CHECK(states.size() == 9);
}

TEST_CASE("the JSON has what the status has") {
    const json::object status = parsed(some_status());
    CHECK(status.at("uptime_s").to_number<double>() == 90061.0);
    CHECK(status.at("listeners").as_array().size() == 2);
    CHECK(status.at("waiting").at("queued").to_number<int>() == 8);
    CHECK(status.at("waiting").at("handed").to_number<int>() == 3);
    CHECK(status.at("totals").at("requests").to_number<int>() == 1000);
    CHECK(status.at("totals").at("timed_out").to_number<int>() == 1);
    CHECK(status.at("totals").at("children_killed").to_number<int>() == 1);
    CHECK(status.at("last_reload").is_null());
    const json::object first = status.at("processes").as_array().front().as_object();
    CHECK(first.at("rss").to_number<int>() == 4096);
    CHECK_FALSE(first.contains("idle_s"));
    CHECK(status.at("processes").at(1).at("idle_s").to_number<double>() == 1.5);
}

TEST_CASE("people read the same in lines") {
    const auto text = status_text(status_json(some_status()));
    REQUIRE(text.has_value());
    CHECK(has(*text, "cede 1.2.3 pid 4711 [www]: serving for 1d 1h, generation 2, fastcgi, pm dynamic"));
    CHECK(has(*text, "127.0.0.1:9000, 7 of 511 in its queue"));
    CHECK(has(*text, "3 of 10: 2 busy, 1 idle (1 told to end)"));
    CHECK(has(*text, "8 new, 3 parked with a request; no child is free or idle (at the most 12 new)"));
    CHECK(has(*text, "40 connections"));
    CHECK(has(*text, "1000 requests on 20 new and 30 parked connections, 2 refused"));
    CHECK(has(*text, "9 started, 6 ended, 1 of them killed; 4 reloads, 1 upgrade\n"));
    CHECK(has(*text, "1.5s"));
    CHECK(has(*text, "2h 0m"));
    CHECK(has(*text, "to end"));
    CHECK_FALSE(has(*text, "last reload"));
}

TEST_CASE("waits are a histogram whose buckets count those before them, in seconds") {
    Status status = some_status();
    status.totals.waits[0] = 90;
    status.totals.waits[6] = 9;
    status.totals.waits[14] = 1;
    status.totals.waited_us = 41'500'000;
    status.totals.longest_wait_us = 41'000'000;
    const json::object waits = parsed(status).at("waits").as_object();
    const json::array& buckets = waits.at("buckets").as_array();
    REQUIRE(buckets.size() == 15);
    CHECK(buckets[0].at("le").to_number<double>() == 0.001);
    CHECK(buckets[0].at("count").to_number<int>() == 90);
    CHECK(buckets[5].at("count").to_number<int>() == 90);
    CHECK(buckets[6].at("le").to_number<double>() == 0.1);
    CHECK(buckets[6].at("count").to_number<int>() == 99);
    CHECK(buckets[13].at("le").to_number<double>() == 30);
    CHECK(buckets[14].at("le").as_string() == "+Inf");
    CHECK(buckets[14].at("count") == waits.at("count"));
    CHECK(waits.at("sum_s").to_number<double>() == 41.5);
    CHECK(waits.at("longest_s").to_number<double>() == 41);
    const auto text = status_text(status_json(status));
    CHECK(has(*text, "waited       90 up to 0.001s, 9 up to 0.1s, 1 longer; 41.000s at the longest\n"));
}

TEST_CASE("the last second, saturation and full queues are told when there is something to tell") {
    Status status = some_status();
    CHECK(parsed(status).at("last_second").is_null());
    const auto quiet = status_text(status_json(status));
    CHECK_FALSE(has(*quiet, "last second"));
    CHECK_FALSE(has(*quiet, "saturated"));
    CHECK_FALSE(has(*quiet, "full"));
    CHECK_FALSE(has(*quiet, "not served"));
    status.recent = Pace::Recent{340, 0.125, Pace::Seconds{0.0041}, Pace::Seconds{0.05}};
    status.saturation = {Status::Seconds{2.5}, 33s, 2, 345, 6};
    status.listeners[1].full = 3100ms;
    status.listeners[1].times_full = 2;
    status.backlog_auto = true;
    status.capacity = 12.5;
    status.totals.abandoned = 4;
    status.totals.overdue = 5;
    const json::object told = parsed(status);
    CHECK(told.at("last_second").at("requests").to_number<double>() == 340);
    CHECK(told.at("last_second").at("waited_share").to_number<double>() == 0.125);
    CHECK(told.at("last_second").at("mean_wait_s").to_number<double>() == 0.004);
    CHECK(told.at("saturation").at("now").as_bool());
    CHECK(told.at("saturation").at("total_s").to_number<double>() == 33);
    CHECK(told.at("saturation").at("requests").to_number<int>() == 345);
    CHECK(told.at("listeners").at(1).at("full_s").to_number<double>() == 3.1);
    CHECK(told.at("capacity").to_number<double>() == 12.5);
    const auto text = status_text(status_json(status));
    CHECK(has(*text, "last second  340.0 requests, 12% waited; 0.004s on average, 0.050s at the longest\n"));
    CHECK(has(*text, "saturated    2 times, for 33.0s: 345 requests had to wait; now, since 2.5s\n"));
    CHECK(has(*text, "/run/a.sock, 1 of 128 in its queue, was full 2 times for 3.1s\n"));
    CHECK(
        has(*text, "not served   4 left while they waited, 5 waited too long, 0 sent too slowly, 0 did not"));
}

TEST_CASE("the last reload is told, with its reason") {
    Status status = some_status();
    status.last_reload = Status::Reload{std::chrono::system_clock::from_time_t(86400) + 668ms, 1500ms, false,
                                        "no php.ini\nat all"};
    const auto text = status_text(status_json(status));
    CHECK(has(*text, "last reload  1970-01-02 00:00:00 UTC, failed after 1.5s: no php.ini at all\n"));
}

TEST_CASE("a status of another version is shown as far as it goes") {
    for (const char* const odd :
         {"{}", R"({"pid":"x","children":[],"listeners":{},"processes":[1,{}]})",
          R"({"uptime_s":-1,"children":{"by_state":{"busy":-3,"new":2}},"last_reload":{"at":-1}})",
          R"({"uptime_s":1e300,"pid":1e300,"last_reload":{"at":18446744073709551615,"ok":1}})"}) {
        CAPTURE(odd);
        CHECK(status_text(odd).has_value());
    }
    CHECK_FALSE(status_text("[]").has_value());
    CHECK_FALSE(status_text("").has_value());
}

TEST_CASE("nothing that a terminal would act upon comes out") {
    Status status = some_status();
    status.title = "a\x1b[2Jb\nc";
    status.listeners.front().address = "x\x07y\r";
    const auto text = status_text(status_json(status));
    CHECK(has(*text, "[a?[2Jb c]"));
    CHECK(has(*text, "x?y?"));
    CHECK(for_terminal("a\tb\x7f\n\xc3\xa4") == "a?b?\n\xc3\xa4");
}
