// SPDX-License-Identifier: Apache-2.0
#include "pm/saturation.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using cede::pm::LogLevel;
using cede::pm::Saturation;
using Why = cede::pm::Saturation::Why;

namespace {

constexpr Saturation::Clock::time_point begin{1000s};

// A pool that is looked at each 10 ms, and asked for lines each 10 ms, too.
struct Story {
    Saturation saturation;
    std::vector<Saturation::Line> lines;
    std::uint64_t arrived = 0;
    Saturation::Clock::time_point now = begin;
    Why why = Why::all_busy;

    // For so long, with one more arrival at each look.
    void waits(std::chrono::milliseconds time, std::uint64_t at_once = 3) {
        for (const auto end = now + time; now < end; now += 10ms) {
            saturation.look({true, at_once, ++arrived}, now);
            tell();
        }
    }
    void is_calm(std::chrono::milliseconds time) {
        for (const auto end = now + time; now < end; now += 10ms) {
            saturation.look({false, 0, arrived}, now);
            tell();
        }
    }
    void tell() { std::ranges::move(saturation.tell(why, 5, now), std::back_inserter(lines)); }
    [[nodiscard]] std::size_t count(std::string_view text) const {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines, [text](const auto& line) { return line.text.find(text) != std::string::npos; }));
    }
};

}  // namespace

TEST_CASE("saturation is told when it begins and when it ends, with all that one asks for") {
    Story story;
    story.is_calm(1s);
    story.waits(3010ms, 12);
    REQUIRE(story.lines.size() == 1);
    CHECK(story.lines[0].text == "requests have to wait, 6 by now: all 5 children are busy (--children)");
    CHECK(story.lines[0].level == LogLevel::warning);
    CHECK(story.saturation.since() == begin + 1s);
    story.is_calm(1s);
    REQUIRE(story.lines.size() == 2);
    CHECK(story.lines[1].text ==
          "requests wait no more, after 3.00 s: 301 requests had to, at the most 12 at once, because all 5 "
          "children are busy (--children)");
    CHECK(!story.saturation.since());
    CHECK(story.saturation.sums().waited == 301);
}

TEST_CASE("a reason that is no limit is less important, and each has its words") {
    for (const auto& [why, level, text] :
         {std::tuple{Why::at_limit, LogLevel::warning, "there may be no more"},
          {Why::starting, LogLevel::notice, "are being started"},
          {Why::failing, LogLevel::warning, "no more can be started"},
          {Why::no_zygote, LogLevel::notice, "PHP is being started"}}) {
        Story story;
        story.why = why;
        story.waits(100ms);
        story.is_calm(200ms);
        REQUIRE(story.lines.size() == 2);
        CHECK(story.count(text) == 2);
        CHECK(story.lines[0].level == level);
        CHECK(story.lines[1].level == level);
    }
}

TEST_CASE("nobody who waits for an instant, or for a child that has time, makes an event") {
    Story story;
    for (int i = 0; i < 1000; ++i) {
        story.waits(10ms);
        story.is_calm(20ms);
    }
    CHECK(story.lines.empty());
    CHECK(story.saturation.sums().times == 0);
    CHECK(story.saturation.sums().moments == 1000);
    CHECK(!story.saturation.since());
}

TEST_CASE("events of three and of thirty seconds are two, and 33 seconds together") {
    Story story;
    story.is_calm(5s);
    story.waits(3s);
    story.is_calm(20s);
    story.waits(30s);
    story.is_calm(20s);
    CHECK(story.lines.size() == 4);
    CHECK(story.saturation.sums().times == 2);
    CHECK(story.saturation.sums().lasted >= 32900ms);
    CHECK(story.saturation.sums().lasted <= 33100ms);
}

TEST_CASE("a queue that is empty for an instant is one event, not many") {
    Story story;
    for (int i = 0; i < 50; ++i) {
        story.waits(70ms);
        story.is_calm(30ms);
    }
    story.is_calm(200ms);
    CHECK(story.saturation.sums().times == 1);
    CHECK(story.lines.size() == 2);
}

TEST_CASE("of events in quick succession the first is told, and the others are summed up") {
    Story story;
    for (int i = 0; i < 4; ++i) {
        story.waits(310ms);
        story.is_calm(1700ms);
    }
    CHECK(story.lines.size() == 2);
    story.is_calm(20s);
    REQUIRE(story.lines.size() == 3);
    CHECK(story.lines[2].text ==
          "requests had to wait 3 more times in the last 8 s: 84 requests, for 0.30 s at the longest");
    story.is_calm(20s);
    CHECK(story.lines.size() == 3);
}

TEST_CASE("one that lasts is told although others came before it, when it is time") {
    Story story;
    story.waits(300ms);
    story.is_calm(700ms);
    story.waits(300ms);
    story.is_calm(700ms);
    story.waits(60s);
    CHECK(story.count("have to wait") == 2);
    CHECK(story.count("1 more time ") == 1);
    story.is_calm(1s);
    CHECK(story.count("no more, after 59.99 s") == 1);
}

TEST_CASE("in any history no more than a pair of lines is written in ten seconds, and nothing is left out") {
    std::minstd_rand random{3};
    for (int round = 0; round < 50; ++round) {
        Story story;
        for (int i = 0; i < 300; ++i) {
            story.waits(std::chrono::milliseconds{random() % 40 * 10});
            story.is_calm(std::chrono::milliseconds{random() % 100 * 10});
        }
        const auto lasted = story.now - begin;
        story.is_calm(30s);
        // A sum may come with each pair.
        CHECK(story.lines.size() <= 3 * static_cast<std::size_t>(lasted / 10s + 1) + 3);
        CHECK(story.count("have to wait") == story.count("wait no more"));
        CHECK(story.saturation.due() == Saturation::Clock::time_point::max());
        std::uint64_t times = story.count("wait no more");
        for (const auto& line : story.lines) {
            constexpr std::string_view words = "requests had to wait ";
            if (line.text.starts_with(words)) {
                times += std::stoull(line.text.substr(words.size()));
            }
        }
        CHECK(times == story.saturation.sums().times);
    }
}
