// SPDX-License-Identifier: Apache-2.0
#include "pm/respawn.h"

#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

const Respawn::Clock::time_point start{1000h};

}  // namespace

TEST_CASE("the first start need not wait") {
    const Respawn respawn;
    CHECK(respawn.failures() == 0);
    CHECK(respawn.earliest() <= start);
}

TEST_CASE(
    "the first failure may be tried again at once, the others after twice the time, up to 1.5 seconds") {
    Respawn respawn;
    auto now = start;
    for (const auto expected : {0ms, 100ms, 200ms, 400ms, 800ms, 1500ms, 1500ms, 1500ms}) {
        respawn.ended(now, 10ms, false);
        CHECK(respawn.earliest() - now == expected);
        now = respawn.earliest();
    }
    CHECK(respawn.failures() == 8);
}

TEST_CASE("a thousand failures wait no longer than ten") {
    Respawn respawn;
    for (int i = 0; i < 1000; ++i) {
        respawn.refused(start);
        CHECK(respawn.earliest() - start <= 1500ms);
    }
    CHECK(respawn.earliest() - start == 1500ms);
}

TEST_CASE("a refused start counts like one that ended early") {
    Respawn refused;
    Respawn ended;
    for (int i = 0; i < 4; ++i) {
        refused.refused(start);
        ended.ended(start, 0ms, false);
        CHECK(refused.earliest() == ended.earliest());
        CHECK(refused.failures() == ended.failures());
    }
}

TEST_CASE("who lived for a second or has served was no failed start") {
    for (const bool served : {false, true}) {
        Respawn respawn;
        for (int i = 0; i < 5; ++i) {
            respawn.refused(start);
        }
        respawn.ended(start + 10s, served ? 1ms : 1000ms, served);
        CHECK(respawn.failures() == 0);
        CHECK(respawn.earliest() <= start + 10s);
        respawn.ended(start + 20s, 999ms, false);
        CHECK(respawn.failures() == 1);
        CHECK((respawn.earliest() == start + 20s));
    }
}

TEST_CASE("success ends the back-off") {
    Respawn respawn;
    for (int i = 0; i < 5; ++i) {
        respawn.refused(start);
    }
    respawn.succeeded();
    CHECK(respawn.failures() == 0);
    respawn.refused(start + 1min);
    CHECK((respawn.earliest() == start + 1min));
}
