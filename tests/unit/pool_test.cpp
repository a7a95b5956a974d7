// SPDX-License-Identifier: Apache-2.0
#include "pm/pool.h"

#include <set>

#include <doctest/doctest.h>

#include "tests/support/descriptors.h"

using namespace cede::pm;
using cede::tests::at_end;
using cede::tests::Ends;
using cede::tests::socket_pair;

namespace {

const Pool::Clock::time_point now{std::chrono::hours{1}};

void make_alive(Pool& pool, std::uint32_t slot, pid_t pid) {
    pool.order(slot, 1, {}, now);
    pool.at(slot).phase = Pool::Phase::alive;
    pool.at(slot).pid = pid;
}

}  // namespace

TEST_CASE("a new pool has nobody in it") {
    Pool pool{3};
    CHECK(pool.size() == 3);
    CHECK(pool.empty());
    CHECK(pool.count(Pool::Phase::vacant) == 3);
    CHECK(pool.count_ready() == 0);
    CHECK_FALSE(pool.find(0));
    CHECK_FALSE(pool.find(1));
}

TEST_CASE("vacant slots are given out until there is none") {
    Pool pool{4};
    std::set<std::uint32_t> given;
    while (const auto slot = pool.any_vacant()) {
        pool.order(*slot, 7, {}, now);
        given.insert(*slot);
    }
    CHECK(given == std::set<std::uint32_t>{0, 1, 2, 3});
    CHECK(pool.count(Pool::Phase::ordered) == 4);
    CHECK_FALSE(pool.empty());
    pool.vacate(2);
    CHECK(pool.any_vacant() == 2);
}

TEST_CASE("a child is found by its pid once it is alive, and not after it has left") {
    Pool pool{3};
    pool.order(1, 1, {}, now);
    CHECK_FALSE(pool.find(0));
    make_alive(pool, 1, 57);
    make_alive(pool, 2, 58);
    CHECK(pool.find(57) == 1);
    CHECK(pool.find(58) == 2);
    pool.vacate(1);
    CHECK_FALSE(pool.find(57));
    CHECK(pool.find(58) == 2);
}

TEST_CASE("only children that asked for a connection are ready") {
    Pool pool{2};
    make_alive(pool, 0, 10);
    CHECK(pool.count_ready() == 0);
    pool.at(0).ready = true;
    CHECK(pool.count_ready() == 1);
    pool.vacate(0);
    CHECK(pool.count_ready() == 0);
}

TEST_CASE("a vacated slot keeps nothing but a new age") {
    Pool pool{1};
    Ends channel = socket_pair();
    const auto before = pool.at(0).age;
    pool.order(0, 3, std::move(channel.ours), now);
    pool.at(0).phase = Pool::Phase::alive;
    pool.at(0).pid = 99;
    pool.at(0).ready = pool.at(0).leaving = true;
    CHECK(pool.at(0).age == before);
    CHECK(pool.at(0).ordered_at == now);
    pool.vacate(0);
    const Pool::Child& child = pool.at(0);
    CHECK(child.phase == Pool::Phase::vacant);
    CHECK(child.pid == 0);
    CHECK_FALSE(child.ready);
    CHECK_FALSE(child.leaving);
    CHECK_FALSE(static_cast<bool>(child.channel));
    CHECK(child.age != before);
    CHECK(at_end(channel.theirs.get()));
}

TEST_CASE("ages go round after 65,536 children without harm") {
    Pool pool{1};
    for (int i = 0; i < 65536; ++i) {
        pool.vacate(0);
    }
    CHECK(pool.at(0).age == 0);
}

TEST_CASE("a child has one printed identity") {
    Pool pool{4};
    make_alive(pool, 3, 57);
    CHECK(pool.identity(3) == "child=3 gen=1 pid=57");
}
