// SPDX-License-Identifier: Apache-2.0
#include "pm/overtime.h"

#include <string>

#include <doctest/doctest.h>

using cede::pm::Overtime;
using namespace std::chrono_literals;

namespace {

using View = Overtime::View;
using Views = std::vector<View>;

// A supervisor's seconds: looks at the same slots each second, and tells what came of it.
struct Watch {
    Overtime overtime{30s};
    Overtime::Clock::time_point now{};

    std::string look(const Views& views) {
        std::string told;
        for (const Overtime::Ending ending : overtime.check(views, now)) {
            told +=
                (ending.how == Overtime::How::ask ? "ask " : "force ") + std::to_string(ending.slot) + ";";
        }
        now += 1s;
        return told;
    }

    // The first second from now on at which something is told, and what; "never" if nothing is.
    std::string look_for(int seconds, const Views& views) {
        for (int second = 0; second < seconds; ++second) {
            if (const std::string told = look(views); !told.empty()) {
                return std::to_string(second) + " " + told;
            }
        }
        return "never";
    }
};

}  // namespace

TEST_CASE("a request that runs for the limit is asked to end, once, and is ended 5 seconds later") {
    Watch watch;
    const Views views{{10, false, 4}, {11, true, 7}};
    CHECK(watch.look_for(100, views) == "30 ask 1;");
    CHECK(watch.look_for(100, views) == "4 force 1;");
    CHECK(watch.look_for(100, views) == "never");
}

TEST_CASE("a child that is busy with one request after the other is left alone") {
    Watch watch;
    for (std::uint64_t request = 0; request < 100; ++request) {
        CHECK(watch.look({{10, true, request}}).empty());
    }
}

TEST_CASE("a child that rests is left alone, however long, and so is its next request until its own limit") {
    Watch watch;
    CHECK(watch.look_for(100, {{10, false, 7}}) == "never");
    CHECK(watch.look_for(29, {{10, true, 8}}) == "never");
    CHECK(watch.look({{10, false, 8}}).empty());
    CHECK(watch.look_for(100, {{10, true, 8}}) == "30 ask 0;");
}

TEST_CASE("a request that ends when it is asked to is not forced") {
    Watch watch;
    CHECK(watch.look_for(100, {{10, true, 7}}) == "30 ask 0;");
    CHECK(watch.look_for(100, {{10, false, 7}}) == "never");
}

TEST_CASE("the next process in a slot starts anew, also with an equal count of requests") {
    Watch watch;
    CHECK(watch.look_for(100, {{10, true, 1}}) == "30 ask 0;");
    CHECK(watch.look({{11, true, 1}}).empty());
    CHECK(watch.look_for(100, {{11, true, 1}}) == "29 ask 0;");
}

TEST_CASE("checks are due each second, and never without a limit") {
    Overtime limited{30s};
    const Overtime::Clock::time_point now{1000s};
    CHECK(limited.due() <= now);
    CHECK(limited.check({}, now).empty());
    CHECK(limited.due() == now + 1s);
    CHECK(Overtime{0s}.due() == Overtime::Clock::time_point::max());
}
