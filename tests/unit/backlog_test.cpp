// SPDX-License-Identifier: Apache-2.0
#include "pm/backlog.h"

#include <limits>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using cede::pm::fitting_backlog;
using cede::pm::worth_changing;

TEST_CASE("as many may wait as are served within the time that one may wait") {
    CHECK(fitting_backlog({1000, 500ms, 10, 4096}) == 500U);
    CHECK(fitting_backlog({1000, 2s, 10, 4096}) == 2000U);
    CHECK(fitting_backlog({33.3, 1s, 10, 4096}) == 34U);
    // Without a limit there is a patience.
    CHECK(fitting_backlog({300, 0ms, 10, 4096}) == 300U);
}

TEST_CASE("a backlog stays within its bounds") {
    CHECK(fitting_backlog({1, 1s, 10, 4096}) == 16U);
    CHECK(fitting_backlog({1, 1s, 100, 4096}) == 100U);
    CHECK(fitting_backlog({1e6, 10s, 10, 4096}) == 4096U);
    CHECK(fitting_backlog({1e300, 10s, 10, {}}) == 1'000'000U);
    CHECK(fitting_backlog({10, 1s, 100, 8}) == 8U);
    CHECK(fitting_backlog({0, 1s, 1, 4096}) == 16U);
}

TEST_CASE("without a known capacity nothing fits") {
    CHECK(!fitting_backlog({{}, 1s, 10, 4096}));
    CHECK(!fitting_backlog({std::numeric_limits<double>::quiet_NaN(), 1s, 10, 4096}));
    CHECK(!fitting_backlog({-1, 1s, 10, 4096}));
}

TEST_CASE("changes of less than a tenth are not worth it") {
    CHECK(!worth_changing(100, 100));
    CHECK(!worth_changing(100, 109));
    CHECK(!worth_changing(100, 91));
    CHECK(worth_changing(100, 110));
    CHECK(worth_changing(100, 90));
    CHECK(worth_changing(0, 16));
    CHECK(worth_changing(16, 1'000'000));
}
