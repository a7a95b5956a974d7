// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_clock.h"

#include <deque>
#include <random>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using cede::pm::QueueClock;

namespace {

constexpr QueueClock::Clock::time_point begin{1000s};

}  // namespace

TEST_CASE("nobody waits in an empty queue, and who comes waits from when he is seen") {
    QueueClock clock;
    CHECK(clock.head_age(begin) == 0s);
    clock.sample(begin, 500, 0);
    CHECK(clock.head_age(begin + 9s) == 0s);
    clock.sample(begin + 10s, 500, 1);
    CHECK(clock.head_age(begin + 12s) == 2s);
    clock.sample(begin + 12s, 501, 0);
    CHECK(clock.head_age(begin + 13s) == 0s);
}

TEST_CASE("the age is that of who is first, whoever comes behind him") {
    QueueClock clock;
    clock.sample(begin, 0, 0);
    clock.sample(begin + 1s, 0, 1);
    clock.sample(begin + 2s, 0, 3);
    clock.sample(begin + 3s, 0, 4);
    CHECK(clock.head_age(begin + 3s) == 2s);
    clock.sample(begin + 4s, 1, 3);
    CHECK(clock.head_age(begin + 4s) == 2s);
    clock.sample(begin + 5s, 2, 2);
    CHECK(clock.head_age(begin + 5s) == 3s);
    clock.sample(begin + 6s, 3, 5);
    CHECK(clock.head_age(begin + 6s) == 3s);
    CHECK(clock.arrivals() == 8);
}

TEST_CASE("a queue of the same length as before has others in it") {
    QueueClock clock;
    for (int i = 0; i <= 100; ++i) {
        clock.sample(begin + i * 10ms, static_cast<unsigned>(i) * 5U, 20);
    }
    // 20 stand there and 5 go each 10 ms: who is first came 4 samples ago, with three behind him.
    CHECK(clock.head_age(begin + 1s) == 30ms);
}

TEST_CASE("random histories are told to one interval, however long") {
    std::minstd_rand random{7};
    for (int round = 0; round < 60; ++round) {
        QueueClock clock;
        std::deque<std::chrono::microseconds> queue;
        std::uint64_t taken = random() % 1000;
        const auto overload = static_cast<unsigned>(random() % 3);  // of arrivals over departures
        std::chrono::microseconds now{0};
        std::chrono::microseconds sampled{0};
        std::chrono::microseconds longest_wait{0};
        clock.sample(begin, taken, 0);
        for (int step = 0; step < 20'000; ++step) {
            now += std::chrono::microseconds{random() % 2000};
            if (random() % 5 < 2 + overload && (step < 15'000 || overload == 0)) {
                queue.push_back(now);
            } else if (!queue.empty()) {
                queue.pop_front();
                ++taken;
            }
            if (now - sampled < 10ms) {
                continue;
            }
            const auto interval = now - sampled;
            sampled = now;
            clock.sample(begin + now, taken, queue.size());
            const auto age = clock.head_age(begin + now);
            const std::chrono::microseconds real =
                queue.empty() ? std::chrono::microseconds{0} : now - queue.front();
            longest_wait = std::max(longest_wait, real);
            CAPTURE(round);
            CAPTURE(step);
            REQUIRE(age <= real);
            REQUIRE(age >= real - interval - 12ms - longest_wait / 100);
        }
    }
}

TEST_CASE("an hour's queue takes no more memory, and its age is still known") {
    QueueClock clock;
    clock.sample(begin, 0, 0);
    std::uint64_t depth = 0;
    auto now = begin;
    for (int i = 0; i < 360'000; ++i) {
        now += 10ms;
        clock.sample(now, 0, ++depth);
    }
    CHECK(clock.head_age(now) >= 3600s - 36s);
    CHECK(clock.head_age(now) <= 3600s);
    // All of them go at once.
    clock.sample(now + 10ms, depth, 0);
    CHECK(clock.head_age(now + 1s) == 0s);
}

TEST_CASE("a count that jumps or goes back makes nobody older") {
    QueueClock clock;
    clock.sample(begin, 1'000'000, 0);
    clock.sample(begin + 10ms, 1'000'000, 2);
    SUBCASE("a jump is a few that were taken, at the most") {
        clock.sample(begin + 20ms, 1'000'000'000'000'000, 2);
        CHECK(clock.head_age(begin + 1s) == 980ms);
        clock.sample(begin + 30ms, 1'000'000'000'000'001, 2);
        CHECK(clock.head_age(begin + 1s) == 980ms);  // one has gone and one has come
        clock.sample(begin + 40ms, 1'000'000'000'000'002, 1);
        CHECK(clock.head_age(begin + 1s) == 970ms);
    }
    SUBCASE("one that goes back counts for nothing") {
        clock.sample(begin + 20ms, 3, 2);
        CHECK(clock.head_age(begin + 1s) == 990ms);
        clock.sample(begin + 30ms, 5, 2);
        CHECK(clock.head_age(begin + 1s) == 970ms);
    }
    SUBCASE("what was taken is seen although nobody counts it") {
        clock.sample(begin + 20ms, 1'000'000, 1);
        clock.sample(begin + 30ms, 1'000'000, 4);
        clock.sample(begin + 40ms, 1'000'000, 3);
        CHECK(clock.head_age(begin + 1s) == 970ms);
    }
}

TEST_CASE("what is counted a moment after it was taken is not taken twice") {
    QueueClock clock;
    clock.sample(begin, 0, 0);
    clock.sample(begin + 10ms, 0, 2);
    clock.sample(begin + 20ms, 0, 3);
    clock.sample(begin + 30ms, 0, 2);  // taken, not yet counted
    clock.sample(begin + 40ms, 1, 2);  // counted
    CHECK(clock.head_age(begin + 50ms) == 40ms);
    CHECK(clock.arrivals() == 3);
}

TEST_CASE("whoever is seen twice, in the queue and as taken, leaves no trace") {
    QueueClock clock;
    clock.sample(begin, 0, 0);
    clock.sample(begin + 10ms, 1, 1);  // the depth was read before the one was taken
    clock.sample(begin + 20ms, 1, 0);
    clock.sample(begin + 10s, 1, 1);
    CHECK(clock.head_age(begin + 10s) == 0s);
}

TEST_CASE("garbage does no harm") {
    std::minstd_rand random{11};
    QueueClock clock;
    auto now = begin;
    for (int i = 0; i < 100'000; ++i) {
        now += std::chrono::milliseconds{random() % 3};
        const std::uint64_t wild = std::uint64_t{random()} << (random() % 33);
        clock.sample(now, random() % 4 == 0 ? wild : static_cast<std::uint64_t>(i), random() % 5000);
        CHECK(clock.head_age(now) >= 0s);
        CHECK(clock.head_age(now) <= now - begin);
    }
}

TEST_CASE("a child that lies at each look keeps nobody from being younger than he is") {
    QueueClock clock;
    std::uint64_t claimed = 0;
    for (int look = 0; look < 1000; ++look) {
        claimed += std::uint64_t{1} << 40U;
        clock.sample(begin + look * 10ms, claimed, 50);
        REQUIRE(clock.head_age(begin + look * 10ms) <= 10ms);
    }
}

TEST_CASE("those behind the first have waited since they came") {
    QueueClock clock;
    clock.sample(begin, 0, 0);
    clock.sample(begin + 10ms, 0, 3);
    clock.sample(begin + 500ms, 0, 10);
    clock.sample(begin + 600ms, 1, 9);
    CHECK(clock.age_behind(begin + 1s, 0) == 990ms);
    CHECK(clock.age_behind(begin + 1s, 1) == 990ms);
    CHECK(clock.age_behind(begin + 1s, 2) == 500ms);
    CHECK(clock.age_behind(begin + 1s, 8) == 500ms);
    CHECK(clock.age_behind(begin + 1s, 9) == 0ms);
}
