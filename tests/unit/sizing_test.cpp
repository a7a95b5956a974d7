// SPDX-License-Identifier: Apache-2.0
#include "pm/sizing.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

using namespace cede::pm;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = Sizing::Clock;

namespace {

constexpr Clock::time_point start{seconds{1000}};

Sizes dynamic(unsigned most, unsigned least_spare, unsigned most_spare) {
    return {PoolMode::dynamic, most, least_spare, least_spare, most_spare, 1000, seconds{10}};
}
Sizes ondemand(unsigned most) {
    return {PoolMode::ondemand, most, 0, 0, 0, 1000, seconds{10}};
}

// Carries decisions out at once: what is started is spare, what is let go is gone.
struct Model {
    Sizing sizing;
    Headcount count{};
    Clock::time_point now = start;

    Sizing::Change step(Clock::duration passed = milliseconds{100}) {
        now += passed;
        const Sizing::Change change = sizing.decide(count, now);
        count.spare += change.start;
        count.spare -= change.retire;
        // Waiters go to whoever is there.
        const auto taken = std::min<std::uint64_t>(count.waiting, count.spare);
        count.spare -= static_cast<unsigned>(taken);
        count.busy += static_cast<unsigned>(taken);
        count.waiting -= taken;
        return change;
    }
    void finish_all() {
        count.spare += count.busy;
        count.busy = 0;
    }
    [[nodiscard]] unsigned total() const { return count.spare + count.busy; }
};

}  // namespace

TEST_CASE("a fixed pool is always filled and never shrinks") {
    Sizing sizing{{PoolMode::fixed, 40, 40}};
    CHECK(sizing.decide({}, start) == Sizing::Change{32, 0});  // not all at once
    CHECK(sizing.decide({.starting = 32}, start) == Sizing::Change{});
    CHECK(sizing.decide({.starting = 2, .spare = 30}, start) == Sizing::Change{8, 0});
    CHECK(sizing.decide({.spare = 40}, start) == Sizing::Change{});
    CHECK(sizing.decide({.spare = 38, .leaving = 1}, start) == Sizing::Change{1, 0});
    CHECK(sizing.due(start) == Clock::time_point::max());
}

TEST_CASE("a pool on demand is empty until somebody waits, then has one child for each") {
    Model model{Sizing{ondemand(20)}};
    CHECK(model.step() == Sizing::Change{});
    model.count.waiting = 1;
    CHECK(model.step() == Sizing::Change{1, 0});
    model.count.waiting = 15;
    CHECK(model.step() == Sizing::Change{15, 0});
    model.count.waiting = 100;
    CHECK(model.step() == Sizing::Change{4, 0});  // the most
    CHECK(model.total() == 20);
}

TEST_CASE("a child that is connected and idle serves a waiter, and none is started for it") {
    Sizing sizing{ondemand(20)};
    (void)sizing.decide({}, start);
    CHECK(sizing.decide({.spare = 3, .waiting = 3}, start) == Sizing::Change{});
    CHECK(sizing.decide({.starting = 2, .spare = 1, .waiting = 3}, start) == Sizing::Change{});
    CHECK(sizing.decide({.starting = 2, .spare = 1, .waiting = 5}, start) == Sizing::Change{2, 0});
}

TEST_CASE("a burst on a small dynamic pool starts all that are needed at once, within the bounds") {
    Model model{Sizing{dynamic(100, 5, 10)}};
    CHECK(model.step() == Sizing::Change{5, 0});
    model.count.waiting = 100;
    CHECK(model.step(milliseconds{1}).start == 32);
    CHECK(model.step(milliseconds{1}).start == 32);
    CHECK(model.step(milliseconds{1}).start == 31);
    CHECK(model.total() == 100);
    CHECK(model.step() == Sizing::Change{});
}

TEST_CASE("not more spare ones are started in a second than allowed") {
    Sizes sizes = dynamic(1000, 500, 600);
    sizes.at_start = 1;
    sizes.starts_a_second = 10;
    Model model{Sizing{sizes}};
    (void)model.step();
    unsigned started = 0;
    for (int i = 0; i < 30; ++i) {
        started += model.step().start;
    }
    CHECK(started >= 30);
    CHECK(started <= 41);  // the bucket was full
}

TEST_CASE("whoever waits gets a child whatever the rate of spare ones is") {
    Sizes sizes = ondemand(1000);
    sizes.starts_a_second = 1;
    Model model{Sizing{sizes}};
    (void)model.step();
    model.count.waiting = 30;
    CHECK(model.step(milliseconds{1}).start == 30);
    model.count.waiting = 60;
    CHECK(model.step(milliseconds{1}).start > 0);
}

TEST_CASE("spare children are kept, and what was needed lately is kept beside them") {
    Model model{Sizing{dynamic(50, 2, 4)}};
    (void)model.step();
    model.count.waiting = 30;
    (void)model.step();
    CHECK(model.total() == 32);
    model.finish_all();
    for (int i = 0; i < 95; ++i) {
        (void)model.step();
    }
    CHECK(model.total() == 32);  // needed less than ten seconds ago
    for (int i = 0; i < 600; ++i) {
        (void)model.step();
    }
    CHECK(model.total() == 4);
}

TEST_CASE("light traffic that visits each child in turn does not keep a pool at its peak") {
    Model model{Sizing{ondemand(20)}};
    model.count.waiting = 20;
    (void)model.step();
    model.finish_all();
    for (int i = 0; i < 600; ++i) {  // a minute, in which one request at a time is served
        model.count.waiting = 1;
        (void)model.step();
        model.finish_all();
    }
    CHECK(model.total() <= 2);
}

TEST_CASE("whoever leaves still takes a place") {
    Sizing sizing{ondemand(10)};
    (void)sizing.decide({}, start);
    CHECK(sizing.decide({.spare = 0, .busy = 6, .leaving = 3, .waiting = 5}, start) == Sizing::Change{1, 0});
}

TEST_CASE("any history: never above the most, never both, never more let go than are spare") {
    std::mt19937 random{5};
    for (int round = 0; round < 200; ++round) {
        const unsigned most = 1 + static_cast<unsigned>(random() % 60);
        const unsigned least = 1 + static_cast<unsigned>(random() % most);
        Model model{
            Sizing{round % 2 == 0
                       ? dynamic(most, least, least + static_cast<unsigned>(random() % (most - least + 1)))
                       : ondemand(most)}};
        for (int i = 0; i < 300; ++i) {
            model.count.waiting = random() % 4 == 0 ? random() % 80 : 0;
            const unsigned spare = model.count.spare;
            const std::uint64_t waiting = model.count.waiting;
            const Sizing::Change change = model.step(milliseconds{random() % 2000});
            REQUIRE(model.total() <= most);
            REQUIRE((change.start == 0 || change.retire == 0));
            REQUIRE(change.retire <= spare);
            REQUIRE((change.retire == 0 || waiting <= spare - change.retire));
            if (random() % 3 == 0) {
                model.finish_all();
            }
        }
    }
}

TEST_CASE("reserved children are kept besides the spare ones, whoever is busy, and are none to let go") {
    for (const unsigned reserved : {1U, 3U}) {
        Sizes sizes = dynamic(20, 2, 4);
        sizes.reserved = reserved;
        Sizing sizing{sizes};
        sizing.resume();
        auto now = start;
        // Nobody is there: two spare ones and the reserve.
        CHECK(sizing.decide({}, now) == Sizing::Change{2 + reserved, 0});
        CHECK(sizing.decide({.spare = 2, .reserved = reserved}, now) == Sizing::Change{});
        CHECK(sizing.decide({.spare = 2, .reserved = reserved - 1}, now) == Sizing::Change{1, 0});
        CHECK(sizing.decide({.spare = 1, .busy = 5, .reserved = reserved}, now) == Sizing::Change{1, 0});
        now += seconds{60};
        CHECK(sizing.decide({.spare = 4, .reserved = reserved}, now) == Sizing::Change{});
        now += seconds{60};
        CHECK(sizing.decide({.spare = 5, .reserved = reserved}, now) == Sizing::Change{0, 1});
    }
}

TEST_CASE("a pool for what waits keeps its reserve when nobody waits") {
    Sizes sizes = ondemand(10);
    sizes.reserved = 2;
    sizes.at_start = 2;
    Sizing sizing{sizes};
    auto now = start;
    CHECK(sizing.decide({}, now) == Sizing::Change{2, 0});
    for (int i = 0; i < 100; ++i) {
        now += seconds{1};
        CHECK(sizing.decide({.reserved = 2}, now) == Sizing::Change{});
    }
    CHECK(sizing.decide({.reserved = 1}, now) == Sizing::Change{1, 0});
    CHECK(sizing.due(now) == Clock::time_point::max());
}

TEST_CASE("a fixed pool counts its reserve, and lets nobody of it go when it is to be smaller") {
    Sizes sizes{PoolMode::fixed, 10, 10};
    sizes.reserved = 2;
    Sizing sizing{sizes};
    CHECK(sizing.decide({.spare = 4, .busy = 4, .reserved = 2}, start) == Sizing::Change{});
    CHECK(sizing.decide({.spare = 4, .busy = 4, .reserved = 1}, start) == Sizing::Change{1, 0});
    sizes.most = 5;
    sizing.set(sizes);
    CHECK(sizing.decide({.spare = 1, .busy = 7, .reserved = 2}, start) == Sizing::Change{0, 1});
    CHECK(sizing.decide({.busy = 7, .reserved = 2}, start) == Sizing::Change{});
}
