// SPDX-License-Identifier: Apache-2.0
#include "pm/refusals.h"

#include <doctest/doctest.h>

using cede::pm::Refusals;
using cede::protocol::Outcome;
using cede::protocol::Protocol;
using std::chrono::milliseconds;

namespace {

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("refused requests make one line a second, which counts those that made none") {
    Refusals refusals;
    const auto report = [&](int at_ms, std::uint64_t total) {
        return refusals.report(Refusals::Clock::time_point{milliseconds{10'000 + at_ms}}, "child=3",
                               Outcome::bad_offset, Protocol::lsapi, Protocol::lsapi, total);
    };
    const std::string first = report(0, 1);
    CHECK(has(first, "child=3"));
    CHECK(has(first, describe(Outcome::bad_offset)));
    CHECK_FALSE(has(first, "since"));
    CHECK(report(1, 2).empty());
    CHECK(report(999, 500).empty());
    CHECK(has(report(1000, 501), "500 since"));
    CHECK_FALSE(has(report(2000, 502), "since"));
}

TEST_CASE("a child that has ended took its counter along, and the line stands all the same") {
    Refusals refusals;
    const Refusals::Clock::time_point start{milliseconds{10'000}};
    CHECK_FALSE(
        refusals.report(start, "child=0", Outcome::bad_entry, Protocol::lsapi, Protocol::lsapi, 900).empty());
    const std::string line = refusals.report(start + milliseconds{1500}, "child=0", Outcome::bad_entry,
                                             Protocol::lsapi, Protocol::lsapi, 2);
    CHECK_FALSE(line.empty());
    CHECK_FALSE(has(line, "since"));
}

TEST_CASE("a web server that speaks the other protocol is told apart from a broken one") {
    const Refusals::Clock::time_point start{milliseconds{10'000}};
    const std::string fastcgi =
        Refusals{}.report(start, "child=0", Outcome::bad_magic, Protocol::fastcgi, Protocol::lsapi, 1);
    CHECK(has(fastcgi, "the web server speaks fastcgi, these children lsapi"));
    const std::string unknown =
        Refusals{}.report(start, "child=0", Outcome::bad_magic, Protocol::unknown, Protocol::lsapi, 1);
    CHECK(has(unknown, describe(Outcome::bad_magic)));
}
