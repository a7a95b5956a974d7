// SPDX-License-Identifier: Apache-2.0
#include "pm/recycling.h"

#include <set>

#include <doctest/doctest.h>

using namespace cede::pm;
using std::chrono::seconds;

namespace {

std::vector<ChildFacts> pool(std::size_t size) {
    std::vector<ChildFacts> children(size);
    for (ChildFacts& child : children) {
        child.serving = true;
    }
    return children;
}

}  // namespace

TEST_CASE("a child is due by its age, its memory, or for having had nothing to do") {
    auto children = pool(3);
    children[0].age = seconds{100};
    children[1].rss = 200;
    children[2].idle_for = seconds{30};
    const auto only = [&](const RecyclingRules& rules) { return choose_recycled(rules, children, 0, 0); };
    REQUIRE(only({.max_age = seconds{100}}).size() == 1);
    CHECK(only({.max_age = seconds{100}})[0].slot == 0);
    CHECK(only({.max_age = seconds{101}}).empty());
    CHECK(only({.max_rss = 199})[0].slot == 1);
    CHECK(only({.max_rss = 200}).empty());
    CHECK(only({.max_idle = seconds{30}})[0].slot == 2);
    CHECK(only({.max_idle = seconds{31}}).empty());
    CHECK(only({}).empty());
    CHECK_FALSE(RecyclingRules{}.any());
}

TEST_CASE("ages are spread by chance, downwards only") {
    auto children = pool(1);
    children[0].age = seconds{91};
    children[0].chance = 99;
    CHECK(choose_recycled({.max_age = seconds{100}}, children, 0, 0).size() == 1);
    children[0].chance = 0;
    CHECK(choose_recycled({.max_age = seconds{100}}, children, 0, 0).empty());
}

TEST_CASE("not more than an eighth are missing at once, and nobody goes while somebody waits") {
    auto children = pool(16);
    for (std::size_t i = 0; i < children.size(); ++i) {
        children[i].age = seconds{1000 + static_cast<int>(i)};
    }
    const RecyclingRules rules{.max_age = seconds{10}};
    const auto chosen = choose_recycled(rules, children, 0, 0);
    REQUIRE(chosen.size() == 2);
    CHECK(chosen[0].slot == 15);  // the oldest first
    CHECK(chosen[1].slot == 14);
    CHECK(choose_recycled(rules, children, 1, 0).size() == 1);
    CHECK(choose_recycled(rules, children, 2, 0).empty());
    CHECK(choose_recycled(rules, children, 16, 0).empty());
    CHECK(choose_recycled(rules, children, 0, 1).empty());
    CHECK(choose_recycled(rules, std::span{children}.first(3), 0, 0).size() == 1);
}

TEST_CASE("memory goes before age, and who is on the way out is not told again") {
    auto children = pool(8);
    children[0].age = seconds{1000};
    children[1].age = seconds{5};
    children[1].rss = 1000;
    const RecyclingRules rules{.max_age = seconds{10}, .max_rss = 500};
    CHECK(choose_recycled(rules, children, 0, 0)[0].slot == 1);
    children[1].serving = false;
    CHECK(choose_recycled(rules, children, 0, 0)[0].slot == 0);
}

TEST_CASE("a quota is never above its limit, never nothing, and differs from child to child") {
    std::set<std::uint64_t> seen;
    for (unsigned chance = 0; chance < 100; ++chance) {
        const std::uint64_t quota = quota_of(1000, 10, chance);
        CHECK(quota <= 1000);
        CHECK(quota > 900);
        seen.insert(quota);
        CHECK(quota_of(1, 50, chance) == 1);
        CHECK(quota_of(0, 10, chance) == 0);
        CHECK(quota_of(5, 0, chance) == 5);
        CHECK(quota_of(0xffffffff, 50, chance) <= 0xffffffff);
    }
    CHECK(seen.size() == 100);
}
