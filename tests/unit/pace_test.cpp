// SPDX-License-Identifier: Apache-2.0
#include "pm/pace.h"

#include <random>

#include <doctest/doctest.h>

#include "pm/backlog.h"

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

constexpr Pace::Clock::time_point begin{1000s};

// A pool whose totals grow.
struct Work {
    Pace pace;
    Counts totals;
    Pace::Clock::duration saturated{};
    Pace::Clock::time_point now = begin;

    // So many seconds with so many requests in each, each of which keeps a child for so long.
    void goes_on(int seconds, std::uint64_t requests, std::chrono::milliseconds each, bool all_busy = false) {
        for (int i = 0; i < seconds; ++i) {
            now += 1s;
            totals.requests += requests;
            totals.begun += requests;
            totals.busy_us += requests * static_cast<std::uint64_t>(each.count()) * 1000;
            saturated += all_busy ? 1s : 0s;
            pace.sample(totals, saturated, now);
        }
    }
};

}  // namespace

TEST_CASE("what a pool can do follows from the time that a request takes") {
    Work work;
    CHECK(!work.pace.capacity(10));
    work.goes_on(4, 30, 100ms);
    CHECK(*work.pace.capacity(10) == doctest::Approx(100));
    CHECK(*work.pace.capacity(5) == doctest::Approx(50));
}

TEST_CASE("while all are busy it can do what it does") {
    Work work;
    // 10 children on one core: each request takes longer than it would alone.
    work.goes_on(6, 120, 80ms, true);
    CHECK(*work.pace.capacity(10) == doctest::Approx(120));
}

TEST_CASE("where children do not say how long they are busy, it is known only while all are busy") {
    Work work;
    work.goes_on(6, 120, 0ms, false);
    CHECK(!work.pace.capacity(10));
    work.goes_on(4, 120, 0ms, true);
    CHECK(*work.pace.capacity(10) == doctest::Approx(120));
}

TEST_CASE("few requests that come all at once are no measure of the rate, but their time is") {
    Work work;
    // Ten children sleep for two seconds each, in step.
    for (int i = 0; i < 10; ++i) {
        work.goes_on(1, 10, 2s, true);
        work.goes_on(1, 0, 0s, true);
    }
    CHECK(*work.pace.capacity(10) == doctest::Approx(5));
}

TEST_CASE("nothing that happened is no capacity of nothing") {
    Work work;
    work.goes_on(30, 100, 10ms);
    work.goes_on(30, 0, 0ms);
    CHECK(!work.pace.capacity(10));
}

TEST_CASE("five seconds after the rate has changed the backlog fits again, to a fifth") {
    std::minstd_rand random{5};
    for (int round = 0; round < 200; ++round) {
        Work work;
        unsigned backlog = 511;
        constexpr unsigned children = 10;
        const bool known = round % 3 != 0;
        for (int change = 0; change < 10; ++change) {
            const auto each = std::chrono::milliseconds{5 + random() % 400};
            const auto rate = static_cast<std::uint64_t>(children * 1000 / each.count());
            const bool all_busy = !known || random() % 2 == 0;
            const std::uint64_t load = all_busy ? rate : rate / 2 + 1;
            for (int second = 0; second < 5; ++second) {
                work.goes_on(1, load, known ? each : 0ms, all_busy);
                const auto fitting = fitting_backlog({work.pace.capacity(children), 2s, children, 100'000});
                if (fitting && worth_changing(backlog, *fitting)) {
                    backlog = *fitting;
                }
            }
            const double wanted = std::max(16.0, 2.0 * static_cast<double>(rate));
            CAPTURE(each.count());
            CAPTURE(all_busy);
            CAPTURE(backlog);
            CHECK(backlog >= 0.8 * wanted);
            CHECK(backlog <= 1.2 * wanted);
        }
    }
}

TEST_CASE("the last second is told: how many, who of them waited, and for how long") {
    Pace pace;
    CHECK(!pace.recent());
    Counts totals;
    totals.begun = 1000;
    totals.waits[0] = 1000;
    totals.waits[13] = 5;
    totals.longest_wait_us = 20'000'000;
    pace.sample(totals, {}, begin);
    CHECK(!pace.recent());
    totals.begun += 400;
    totals.waits[0] += 300;
    totals.waits[4] += 100;  // up to 20 ms
    totals.waited_us += 400 * 3000;
    pace.sample(totals, {}, begin + 2s);
    const auto recent = pace.recent();
    REQUIRE(recent);
    CHECK(recent->requests_a_second == doctest::Approx(200));
    CHECK(recent->waited_share == doctest::Approx(0.25));
    CHECK(recent->mean_wait.count() == doctest::Approx(0.003));
    CHECK(recent->longest_wait.count() == doctest::Approx(0.020));
    pace.sample(totals, {}, begin + 3s);
    CHECK(pace.recent()->requests_a_second == 0);
    CHECK(pace.recent()->waited_share == 0);
    CHECK(pace.recent()->longest_wait.count() == 0);
    ++totals.waits[14];
    totals.longest_wait_us = 40'000'000;
    pace.sample(totals, {}, begin + 4s);
    CHECK(pace.recent()->longest_wait.count() == doctest::Approx(40));
}
