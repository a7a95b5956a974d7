// SPDX-License-Identifier: Apache-2.0
#include "pm/totals.h"

#include <cstdint>
#include <limits>
#include <random>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

Counts requests(std::uint64_t number) {
    Counts counts;
    counts.requests = number;
    return counts;
}

Counts everything(std::uint64_t number) {
    return {number, number, number, number, number, number};
}

// As many requests, each of which has waited so long.
Counts waits(std::uint64_t number, std::uint64_t each_us) {
    Counts counts;
    counts.waits[3] = number;
    counts.waited_us = number * each_us;
    counts.longest_wait_us = each_us;
    return counts;
}

}  // namespace

TEST_CASE("what a child has counted is kept when it dies and the next one begins at nothing") {
    Totals totals;
    totals.look(0, everything(3), 1s);
    totals.end(0, everything(5), 1s);
    CHECK(totals.all() == everything(5));
    totals.look(0, everything(1), 1s);
    totals.look(1, everything(10), 1s);
    CHECK(totals.all() == everything(16));
    totals.end(1, everything(10), 1s);
    totals.end(0, everything(2), 1s);
    CHECK(totals.all() == everything(17));
}

TEST_CASE("a child that counts back takes nothing away") {
    Totals totals;
    totals.look(0, requests(50), 1s);
    CHECK(totals.look(0, requests(7), 1s).requests == 50);
    totals.end(0, requests(0), 1s);
    CHECK(totals.all().requests == 50);
}

TEST_CASE("garbage in one counter is not believed, and leaves the others alone") {
    Totals totals;
    totals.look(0, everything(4), 1s);
    for (const std::uint64_t garbage : {largest, largest / 2 + 1, std::uint64_t{1} << 40U}) {
        Counts claimed = everything(5);
        claimed.parked = garbage;
        totals.look(0, claimed, 1s);
        CHECK(totals.all().parked == 4);
        CHECK(totals.all().requests == 5);
    }
    totals.end(0, everything(largest), 1s);
    CHECK(totals.all().requests == 5);
}

TEST_CASE("a lie adds no more than a child could have done in its life") {
    Totals totals;
    totals.look(0, requests(2'000'000), 1s);
    CHECK(totals.all().requests == 0);
    totals.look(0, requests(1'000'000), 1s);
    CHECK(totals.all().requests == 1'000'000);
    totals.look(0, requests(2'000'000), 2s);
    CHECK(totals.all().requests == 2'000'000);
    totals.look(0, requests(3'000'000), -1s);
    CHECK(totals.all().requests == 2'000'000);
}

TEST_CASE("whatever children claim, no sum ever goes back") {
    std::mt19937_64 random{1};
    Totals totals;
    Counts before;
    for (int i = 0; i < 20000; ++i) {
        const auto slot = static_cast<std::uint32_t>(random() % 8);
        const auto age = std::chrono::microseconds{random() % 100'000};
        const Counts claimed = everything(random() >> (random() % 64));
        if (random() % 4 == 0) {
            totals.end(slot, claimed, age);
        } else {
            totals.look(slot, claimed, age);
        }
        const Counts now = totals.all();
        REQUIRE(now.requests >= before.requests);
        REQUIRE(now.refused >= before.refused);
        before = now;
    }
    CHECK(before.requests < 20000ULL * 102'000);
}

TEST_CASE("waits add up, and the longest of all is no sum") {
    Totals totals;
    totals.end(0, waits(5, 9000), 1s);
    totals.look(0, waits(2, 30'000), 1s);
    totals.look(1, waits(3, 7000), 1s);
    const Counts all = totals.all();
    CHECK(all.waits[3] == 10);
    CHECK(all.waits_known() == 10);
    CHECK(all.waited_us == 5 * 9000 + 2 * 30'000 + 3 * 7000);
    CHECK(all.longest_wait_us == 30'000);
}

TEST_CASE("requests may have waited for longer than their child has been there, but not without end") {
    Totals totals;
    totals.look(0, waits(100, 60'000'000), 1s);
    CHECK(totals.all().waited_us == 6'000'000'000);
    SUBCASE("a wait of more than a day") {
        Counts claimed = waits(100, 60'000'000);
        claimed.longest_wait_us = 86'400'000'001;
        totals.look(0, claimed, 1s);
        CHECK(totals.all().longest_wait_us == 60'000'000);
    }
    SUBCASE("more in all than as many requests can have waited") {
        Counts claimed = waits(100, 60'000'000);
        claimed.waited_us += 1;
        totals.look(0, claimed, 1s);
        CHECK(totals.all().waited_us == 6'000'000'000);
    }
    SUBCASE("more requests than a child can serve") {
        Counts claimed = waits(100, 60'000'000);
        claimed.waits[14] = 2'000'000;
        totals.look(0, claimed, 1s);
        CHECK(totals.all().waits_known() == 100);
    }
    SUBCASE("garbage everywhere") {
        Counts claimed;
        claimed.waits.fill(largest);
        claimed.waited_us = claimed.longest_wait_us = claimed.busy_us = largest;
        totals.look(0, claimed, 1s);
        totals.end(0, claimed, 1s);
        CHECK(totals.all() == waits(100, 60'000'000));
    }
}

TEST_CASE("a child is busy for no longer than it is there") {
    Totals totals;
    Counts claimed;
    claimed.busy_us = 900'000;
    totals.look(0, claimed, 1s);
    claimed.busy_us = 1'100'000;
    totals.look(0, claimed, 1s);
    CHECK(totals.all().busy_us == 900'000);
}

TEST_CASE("waits survive being saved and loaded; those of a version with other bounds are left out") {
    Totals totals;
    totals.end(0, waits(5, 9000), 1s);
    totals.look(1, waits(2, 30'000), 1s);
    Totals loaded;
    REQUIRE(loaded.load(totals.save()));
    CHECK(loaded.all() == totals.all());
    REQUIRE(loaded.load(R"({"gone":{"waits":[1,2,3],"waited_us":7},"events":{},"children":[]})"));
    CHECK(loaded.all().waits_known() == 0);
    CHECK_FALSE(loaded.load(R"({"gone":{"waits":7},"events":{},"children":[]})"));
    CHECK_FALSE(
        loaded.load(R"({"gone":{"waits":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,"x"]},"events":{},"children":[]})"));
}

TEST_CASE("totals survive being saved and loaded") {
    Totals totals;
    totals.end(0, {1, 2, 3, 4, 5, 6}, 1s);
    totals.look(1, everything(7), 1s);
    totals.events = {8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    Totals loaded;
    REQUIRE(loaded.load(totals.save()));
    CHECK(loaded.all() == totals.all());
    CHECK(loaded.events == totals.events);
    // Who was there is there still, and is not counted twice.
    loaded.end(1, everything(8), 1s);
    CHECK(loaded.all().requests == 9);
}

TEST_CASE("what was not saved by us is not loaded, and changes nothing") {
    Totals totals;
    totals.look(0, requests(5), 1s);
    for (const char* const bad :
         {"", "{}", "[]", "nonsense", R"({"gone":{},"events":{}})",
          R"({"gone":[],"events":{},"children":[]})", R"({"gone":{"parked":-6},"events":{},"children":[]})",
          R"({"gone":{},"events":{"ended":"5"},"children":[]})", R"({"gone":{},"events":{},"children":{}})",
          R"({"gone":{},"events":{},"children":[1]})"}) {
        CAPTURE(bad);
        CHECK_FALSE(totals.load(bad));
    }
    CHECK(totals.all().requests == 5);
}

TEST_CASE("what another version counts, or does not yet count, is no obstacle") {
    Totals totals;
    CHECK(totals.load(
        R"({"gone":{"requests":5,"dreams":1},"events":{"ended":2},"children":[{"parked":1}],"x":1})"));
    CHECK(totals.all() == Counts{5, 0, 0, 1, 0, 0});
    CHECK(totals.events.ended == 2);
    CHECK(totals.events.started == 0);
}
