// SPDX-License-Identifier: Apache-2.0
#include "pm/rate.h"

#include <doctest/doctest.h>

using cede::pm::Rate;
using namespace std::chrono_literals;

namespace {

const Rate::Clock::time_point start{1000h};

}  // namespace

TEST_CASE("at first there is as much as the burst, and then nothing") {
    Rate rate{100, 1000};
    CHECK(rate.take(999, start));
    CHECK_FALSE(rate.take(2, start));
    CHECK(rate.take(1, start));
    CHECK_FALSE(rate.take(1, start));
}

TEST_CASE("with time comes as much as the rate allows, and never more than the burst") {
    Rate rate{100, 1000};
    REQUIRE(rate.take(1000, start));
    CHECK_FALSE(rate.take(51, start + 500ms));
    CHECK(rate.take(50, start + 500ms));
    CHECK_FALSE(rate.take(1001, start + 24h));
    CHECK(rate.take(1000, start + 24h));
}

TEST_CASE("many small pieces get as much as one large one") {
    Rate rate{1000, 1000};
    unsigned taken = 0;
    for (int i = 0; i < 10000; ++i) {
        taken += rate.take(1, start + std::chrono::milliseconds{i}) ? 1U : 0U;
    }
    CHECK(taken >= 9999);
    taken = 0;
    for (int i = 0; i < 10000; ++i) {
        taken += rate.take(2, start + 10s + std::chrono::milliseconds{i}) ? 2U : 0U;
    }
    CHECK(taken >= 10900);
    CHECK(taken <= 11000);
}

TEST_CASE("a clock that stands still or goes back gives nothing") {
    Rate rate{100, 100};
    REQUIRE(rate.take(100, start));
    CHECK_FALSE(rate.take(1, start));
    CHECK_FALSE(rate.take(1, start - 1h));
}
