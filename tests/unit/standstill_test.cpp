// SPDX-License-Identifier: Apache-2.0
#include "pm/standstill.h"

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using cede::pm::Standstill;

namespace {

constexpr Standstill::Clock::time_point begin{1000s};
constexpr Standstill::View stuck{true, true, 7};

}  // namespace

TEST_CASE("a pool that stands still for the limit is told, once for each limit") {
    Standstill standstill;
    unsigned told = 0;
    for (int second = 0; second <= 35; ++second) {
        const bool now = standstill.check(stuck, 10s, begin + second * 1s);
        told += now ? 1 : 0;
        CHECK(now == (second == 10 || second == 20 || second == 30));
    }
    CHECK(told == 3);
}

TEST_CASE("any sign of life begins anew") {
    for (const Standstill::View life :
         {Standstill::View{false, true, 7}, {true, false, 7}, {true, true, 8}}) {
        Standstill standstill;
        CHECK(!standstill.check(stuck, 10s, begin));
        CHECK(!standstill.check(life, 10s, begin + 9s));
        Standstill::View after = stuck;
        after.requests = life.requests;
        CHECK(!standstill.check(after, 10s, begin + 18s));
        CHECK(standstill.check(after, 10s, begin + 19s));
    }
}

TEST_CASE("without a limit nothing stands still") {
    Standstill standstill;
    CHECK(!standstill.check(stuck, 0s, begin));
    CHECK(!standstill.check(stuck, 0s, begin + 24h));
}
