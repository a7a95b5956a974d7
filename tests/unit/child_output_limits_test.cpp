// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <fcntl.h>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "pm/child_output.h"
#include "pm/log.h"
#include "tests/support/output_desk.h"

using namespace cede::pm;
using namespace std::chrono_literals;
using cede::children::UniqueFd;
using cede::tests::child;
using cede::tests::logged_by;
using cede::tests::OutputDesk;
using cede::tests::say;

TEST_CASE("beyond what one process may log its lines are dropped, all counted, and others go on") {
    constexpr unsigned total = 10'000;
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        const auto start = ChildOutput::Clock::now();
        for (unsigned i = 0; i < total; ++i) {
            say(loud, std::string(1999, 'x') + "\n");
            if (i % 10 == 0) {
                desk.turn(start);
            }
        }
        say(quiet, "me, too\n");
        while (desk.turn(start)) {
        }
        if (desk.output.due() != start + ChildOutput::patience) {
            return "due at another time";
        }
        desk.output.tend(start + 1s);
        say(loud, "again\n");
        desk.turn(start + 1s);
        return "";
    });
    REQUIRE(lines.size() > 4);
    CHECK(lines.back() == "notice: loud output: again");
    CHECK(lines[lines.size() - 3] == "notice: quiet output: me, too");
    const std::string& count = lines[lines.size() - 2];
    std::smatch found;
    REQUIRE(std::regex_match(
        count, found,
        std::regex{
            R"(warning: loud wrote more than 1000 lines or 1024 KiB a second: (\d+) lines of its output, (\d+) bytes, were dropped)"}));
    const unsigned long dropped = std::stoul(found[1]);
    CHECK(dropped + lines.size() - 3 == total);
    CHECK(std::stoul(found[2]) == dropped * 1999);
    CHECK(lines.size() * 2000 < ChildOutput::most_at_once);
}

TEST_CASE("empty lines are limited by their number: what is beyond is dropped and counted") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const auto start = ChildOutput::Clock::now();
        say(loud, std::string(50'000, '\n'));
        while (desk.turn(start)) {
        }
        desk.output.tend(start + 1s);
        say(loud, std::string(2000, '\n'));
        while (desk.turn(start + 1s)) {
        }
        desk.output.tend(start + 2s);
        return "";
    });
    REQUIRE(lines.size() == ChildOutput::most_lines_at_once + 1 + ChildOutput::most_lines_per_second + 1);
    CHECK(
        lines[ChildOutput::most_lines_at_once] ==
        "warning: loud wrote more than 1000 lines or 1024 KiB a second: 46000 lines of its output, 0 bytes, "
        "were dropped");
    CHECK(lines.back() ==
          "warning: loud wrote more than 1000 lines or 1024 KiB a second: 1000 lines of its output, 0 bytes, "
          "were dropped");
}

TEST_CASE("a turn writes few lines, however many were read, and the next ones the others, in order") {
    constexpr unsigned total = 3000;
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        std::string text;
        for (unsigned i = 0; i < total; ++i) {
            text += std::to_string(i) + "\n";
        }
        say(loud, text + "half");
        desk.turn();
        log_always(LogLevel::notice, "mark");
        say(quiet, "hello\n");
        desk.output.tend(ChildOutput::Clock::now());  // nothing has to happen for it
        desk.turn();
        log_always(LogLevel::notice, "mark");
        desk.turn_until_quiet();
        desk.output.end(child(0), "loud");
        return "";
    });
    REQUIRE(lines.size() == total + 4);
    CHECK(lines[ChildOutput::lines_of_a_turn] == "notice: mark");
    CHECK(lines[2 * ChildOutput::lines_of_a_turn + 1] == "notice: quiet output: hello");
    unsigned next = 0;
    for (const std::string& line : lines) {
        if (line.starts_with("notice: loud output: ") && next < total) {
            CHECK(line == "notice: loud output: " + std::to_string(next++));
        }
    }
    CHECK(next == total);
    CHECK(lines.back() == "notice: loud output: half");
}

TEST_CASE("lines that are left for the next turn are written at the end of their process, and at flush") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd one = desk.start(0, "one");
        const UniqueFd other = desk.start(1, "other");
        say(one, std::string(1000, '\n') + "last\n");
        say(other, std::string(1000, '\n') + "last\n");
        desk.turn();
        desk.output.end(child(0), "one");
        log_always(LogLevel::notice, "it has ended");
        desk.output.flush(ChildOutput::Clock::now());
        desk.turn();
        return desk.output.due() == ChildOutput::Clock::time_point::max() ? "" : "something is due";
    });
    REQUIRE(lines.size() == 2003);
    CHECK(lines[1251] == "notice: it has ended");
    CHECK(lines[1250] == "notice: one output: last");
    CHECK(lines.back() == "notice: other output: last");
}

TEST_CASE("in one turn everybody has his share, whoever has more to say") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        if (::fcntl(loud.get(), F_GETPIPE_SZ) < 128 * 1024) {
            return "";  // no room for more than a share
        }
        for (int i = 0; i < 100; ++i) {
            say(loud, std::string(1023, 'x') + "\n");
        }
        say(quiet, "hello\n");
        desk.turn();
        log_always(LogLevel::notice, "mark");
        desk.turn_until_quiet();
        return "";
    });
    std::size_t mark = 0;
    while (mark < lines.size() && lines[mark] != "notice: mark") {
        ++mark;
    }
    if (lines.size() > 1) {
        CHECK(lines.size() == 102);
        CHECK(mark == ChildOutput::most_in_a_turn / 1024 + 1);
        CHECK(lines[mark - 1] == "notice: quiet output: hello");
    }
}
