// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_policy.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "pm/service_rate.h"

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t second = 1'000'000'000;

QueueRules rules(std::chrono::nanoseconds max_wait, Overload overload = Overload::fifo, bool pings = false) {
    return {max_wait, overload, pings};
}

}  // namespace

TEST_CASE(
    "the supervisor accepts under pressure only, what has stood for long, and nothing when all is over") {
    const QueueRules plain = rules(0s);
    CHECK(accept_now(plain, {101ms, true, false, false}));
    CHECK_FALSE(accept_now(plain, {99ms, true, false, false}));
    CHECK_FALSE(accept_now(plain, {10s, false, false, false}));
    CHECK_FALSE(accept_now(plain, {10s, true, false, true}));
    CHECK_FALSE(accept_now(plain, {0s, true, false, false}));
    CHECK_FALSE(accept_now(plain, {50ms, true, true, false}));
    // A quarter of what they may wait.
    CHECK(accept_now(rules(200ms), {51ms, true, false, false}));
    CHECK_FALSE(accept_now(rules(200ms), {49ms, true, false, false}));
    CHECK_FALSE(accept_now(rules(10s), {99ms, true, false, false}));
    // Where others wait in order they belong there at once.
    CHECK(accept_now(rules(10s), {1ms, true, true, false}));
    CHECK(accept_now(rules(0s, Overload::fifo, true), {1ns, true, false, false}));
    CHECK(accept_now(rules(5s, Overload::reject), {1ns, true, false, false}));
    CHECK_FALSE(accept_now(rules(5s, Overload::reject, true), {0s, true, true, false}));
}

TEST_CASE("who has waited for as long as anybody may is overdue, and nobody else") {
    const std::vector<std::uint64_t> since{second, 2 * second, 3 * second, 9 * second};
    CHECK(judge(rules(2s), since, 0, 3 * second - 1).overdue == 0);
    CHECK(judge(rules(2s), since, 0, 3 * second).overdue == 1);
    CHECK(judge(rules(2s), since, 0, 5 * second).overdue == 3);
    CHECK(judge(rules(0s), since, 0, 99 * second).overdue == 0);
    CHECK(judge(rules(2s), {}, 0, 99 * second).overdue == 0);
    // A time to come is no reason.
    CHECK(judge(rules(2s), since, 0, second / 2).overdue == 0);
}

TEST_CASE("the newest is first only while the queue has been standing, and only where that was asked for") {
    const std::vector<std::uint64_t> since{10 * second};
    CHECK_FALSE(judge(rules(2s, Overload::lifo), since, 0, 11 * second).newest_first);
    CHECK(judge(rules(2s, Overload::lifo), since, 0, 12 * second).newest_first);
    CHECK(judge(rules(2s, Overload::lifo), since, 10 * second, 11 * second).newest_first);
    CHECK_FALSE(judge(rules(2s, Overload::lifo), {}, 10 * second, 12 * second).newest_first);
    CHECK(judge(rules(100ms, Overload::lifo), {}, 10 * second, 10 * second + 900'000'000).newest_first);
    for (const Overload other : {Overload::fifo, Overload::reject}) {
        CHECK_FALSE(judge(rules(2s, other), since, 10 * second, 12 * second).newest_first);
    }
}

TEST_CASE("whoever would wait too long behind the others is refused at once, if the rate is known") {
    const QueueRules reject = rules(500ms, Overload::reject);
    CHECK(is_hopeless(reject, 50, 100.0));
    CHECK_FALSE(is_hopeless(reject, 49, 100.0));
    CHECK_FALSE(is_hopeless(reject, 1'000'000, std::nullopt));
    CHECK_FALSE(is_hopeless(reject, 0, 0.0));
    CHECK_FALSE(is_hopeless(rules(500ms), 50, 100.0));
    CHECK_FALSE(is_hopeless(rules(500ms, Overload::lifo), 50, 100.0));
    CHECK_FALSE(is_hopeless(rules(0s, Overload::reject), 50, 100.0));
}

TEST_CASE("newest first leaves few where they can't be put into another order, and some for each child") {
    CHECK(most_handed(false, 10, 5.0) == std::numeric_limits<std::size_t>::max());
    CHECK(most_handed(true, 10, std::nullopt) == 10);
    CHECK(most_handed(true, 10, 100.0) == 12);
    CHECK(most_handed(true, 10, 10'000.0) >= 100);
    CHECK(most_handed(true, 10, 1e300) < 2'000'000);
}

TEST_CASE("in any history nobody who may still wait is refused, and nobody who may not is kept") {
    std::minstd_rand random{7};
    for (int round = 0; round < 300; ++round) {
        const std::uint64_t limit = 1 + random() % 1000;
        const auto overload = static_cast<Overload>(random() % 3);
        const QueueRules some = rules(std::chrono::nanoseconds{limit}, overload);
        std::vector<std::uint64_t> queue;
        std::uint64_t last_overdue = 0;
        for (std::uint64_t now = 2; now < 3000; now += 1 + random() % 50) {
            for (auto i = random() % 4; i > 0; --i) {
                queue.push_back(now - std::min<std::uint64_t>(now, random() % 20));
            }
            std::ranges::sort(queue);
            const Judgement judgement = judge(some, queue, last_overdue, now);
            REQUIRE(judgement.overdue <= queue.size());
            for (std::size_t i = 0; i < queue.size(); ++i) {
                REQUIRE((queue[i] + limit <= now) == (i < judgement.overdue));
            }
            REQUIRE((overload == Overload::lifo || !judgement.newest_first));
            last_overdue = judgement.overdue > 0 ? now : last_overdue;
            queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(judgement.overdue));
            for (auto i = random() % 3; i > 0 && !queue.empty(); --i) {
                queue.erase(judgement.newest_first ? queue.end() - 1 : queue.begin());
            }
        }
    }
}

TEST_CASE("the rate of service is what children answer under pressure") {
    ServiceRate rate;
    CHECK_FALSE(rate.per_second(2));
    std::vector<std::uint64_t> answered{100, 1000};
    std::uint64_t now = second;
    rate.sample(answered, now);  // what was before counts for nothing
    const auto run = [&](int ticks, std::uint64_t each) {
        for (int i = 0; i < ticks; ++i) {
            now += second / 20;
            answered[0] += each;
            rate.sample(answered, now);
        }
    };
    run(5, 5);
    CHECK_FALSE(rate.per_second(2));
    run(15, 5);
    CHECK(rate.per_second(2).value() == doctest::Approx(100));
    run(400, 10);
    CHECK(rate.per_second(2).value() == doctest::Approx(200).epsilon(0.02));
    CHECK_FALSE(rate.per_second(20'000));  // not even one each
    // A time without pressure is no time without work.
    rate.pause();
    now += 100 * second;
    rate.sample(answered, now);
    run(20, 10);
    CHECK(rate.per_second(2).value() == doctest::Approx(200).epsilon(0.02));
    // A new child begins at nothing, and one that lies does so within bounds.
    answered[1] = 0;
    run(1, 10);
    CHECK(rate.per_second(2).value() == doctest::Approx(200).epsilon(0.02));
    answered[1] = std::numeric_limits<std::uint64_t>::max();
    run(1, 10);
    CHECK(rate.per_second(2).value() < 1e6);
}

TEST_CASE("slow scripts that end together have a rate, although nothing ends for seconds") {
    ServiceRate rate;
    std::vector<std::uint64_t> answered(10, 0);
    std::uint64_t now = second;
    double least = 1000;
    double most = 0;
    for (int tick = 0; tick < 800; ++tick) {
        now += second / 20;
        if (tick % 100 == 99) {
            std::ranges::for_each(answered, [](std::uint64_t& count) { ++count; });
        }
        rate.sample(answered, now);
        const auto measured = rate.per_second(answered.size());
        if (tick < 99) {
            REQUIRE_FALSE(measured);
        } else {
            least = std::min(least, measured.value());
            most = std::max(most, measured.value());
        }
    }
    CHECK(least >= 1);
    CHECK(most <= 5);
}
