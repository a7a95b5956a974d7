// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_fullness.h"

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using cede::pm::QueueFullness;

namespace {

constexpr QueueFullness::Clock::time_point begin{1000s};

}  // namespace

TEST_CASE("a queue is full from the backlog on, and until it is shorter") {
    QueueFullness fullness;
    for (int i = 0; i < 100; ++i) {
        const bool full = i >= 20 && i < 50;
        fullness.sample(full ? 8U + static_cast<unsigned>(i % 2) : 7U, 8U, begin + i * 10ms);
    }
    CHECK(fullness.sums().times == 1);
    CHECK(fullness.sums().lasted == 300ms);
    fullness.sample(9, 8U, begin + 2s);
    fullness.sample(0, 8U, begin + 2010ms);
    CHECK(fullness.sums().times == 2);
    CHECK(fullness.sums().lasted == 310ms);
}

TEST_CASE("without a known backlog no queue is full") {
    QueueFullness fullness;
    fullness.sample(100'000, std::nullopt, begin);
    fullness.sample(0, 0U, begin + 1s);
    fullness.sample(0, 0U, begin + 2s);
    CHECK(fullness.sums().times == 0);
    fullness.sample(1, 0U, begin + 3s);
    CHECK(fullness.sums().times == 1);
}

TEST_CASE("what is new is told at once, and then each 10 seconds, with nothing left out") {
    QueueFullness fullness;
    CHECK(!fullness.news(begin));
    std::uint64_t times = 0;
    unsigned told = 0;
    QueueFullness::Clock::duration lasted{};
    for (int i = 0; i < 6000; ++i) {
        const auto now = begin + i * 10ms;
        fullness.sample(i < 3000 && i % 100 < 30 ? 8 : 0, 8U, now);
        if (const auto news = fullness.news(now)) {
            times += news->times;
            lasted += news->lasted;
            ++told;
        }
    }
    CHECK(times == 30);
    CHECK(lasted == 9s);
    CHECK(told == 4);
}
