// SPDX-License-Identifier: Apache-2.0
#include "pm/log_folding.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace cede::pm;
using namespace std::chrono_literals;
using Texts = std::vector<std::string>;

namespace {

const LogFolding::Clock::time_point start{1000h};

Texts texts(const std::vector<LogFolding::Line>& lines) {
    Texts result;
    for (const LogFolding::Line& line : lines) {
        result.push_back(line.text);
    }
    return result;
}

// What is written of `count` equal lines, all at once.
std::size_t written(LogFolding& folding, unsigned count, const std::string& text,
                    LogFolding::Clock::time_point at) {
    std::size_t lines = 0;
    for (unsigned i = 0; i < count; ++i) {
        lines += folding.add(LogLevel::error, text, at).size();
    }
    return lines;
}

}  // namespace

TEST_CASE("a line of its own kind is written as it is") {
    LogFolding folding;
    CHECK(texts(folding.add(LogLevel::error, "one", start)) == Texts{"one"});
    CHECK(texts(folding.add(LogLevel::error, "", start)) == Texts{""});
    CHECK(folding.end_all().empty());
}

TEST_CASE("the sixth line within a minute is counted, and the count comes when the minute is over") {
    LogFolding folding;
    CHECK(written(folding, 5, "again", start) == 5);
    CHECK(written(folding, 1000, "again", start + 1s) == 0);
    CHECK(folding.end_overdue(start + 60s - 1ns).empty());
    CHECK(texts(folding.end_overdue(start + 60s)) == Texts{"again ... repeated 1000 times"});
    CHECK(folding.end_overdue(start + 1h).empty());
}

TEST_CASE("what is repeated once is told in the singular") {
    LogFolding folding;
    written(folding, 6, "again", start);
    CHECK(texts(folding.end_all()) == Texts{"again ... repeated 1 time"});
}

TEST_CASE("numbers make no difference, and the count carries the last of them") {
    LogFolding folding;
    for (unsigned i = 8; i < 13; ++i) {
        CHECK(folding.add(LogLevel::warning, fmt::format("child={} pid=1{}", i, i * i), start).size() == 1);
    }
    CHECK(folding.add(LogLevel::warning, "child=107 pid=2", start).empty());
    CHECK(texts(folding.end_all()) == Texts{"child=107 pid=2 ... repeated 1 time"});
}

TEST_CASE("words and levels make a difference") {
    LogFolding folding;
    written(folding, 5, "one 1", start);
    CHECK(texts(folding.add(LogLevel::error, "two 1", start)) == Texts{"two 1"});
    CHECK(texts(folding.add(LogLevel::warning, "one 1", start)) == Texts{"one 1"});
    CHECK(texts(folding.add(LogLevel::error, "one", start)) == Texts{"one"});
    CHECK(folding.add(LogLevel::error, "one 2", start).empty());
}

TEST_CASE("kinds of lines that take turns are counted apart") {
    LogFolding folding;
    std::size_t lines = 0;
    for (unsigned i = 0; i < 100; ++i) {
        lines += folding.add(LogLevel::error, fmt::format("ended {}", i), start + i * 500ms).size();
        lines += folding.add(LogLevel::error, fmt::format("tried {}", i), start + i * 500ms).size();
    }
    CHECK(lines == 10);
    CHECK(texts(folding.end_all()) ==
          Texts{"ended 99 ... repeated 95 times", "tried 99 ... repeated 95 times"});
}

TEST_CASE("a due count comes before the line that brings it out, with its own level") {
    LogFolding folding;
    written(folding, 7, "again", start);
    const auto lines = folding.add(LogLevel::warning, "else", start + 2min);
    CHECK(texts(lines) == Texts{"again ... repeated 2 times", "else"});
    CHECK(lines.front().level == LogLevel::error);
}

TEST_CASE("five lines are written in each minute of an endless repetition, and one with the count") {
    LogFolding folding;
    std::size_t lines = 0;
    for (unsigned second = 0; second < 600; ++second) {
        lines += folding.add(LogLevel::error, "again", start + second * 1s).size();
    }
    CHECK(lines == 10 * 5 + 9);
    CHECK(texts(folding.end_all()) == Texts{"again ... repeated 55 times"});
}

TEST_CASE("five lines in a minute are never counted, however long it goes on") {
    LogFolding folding;
    for (unsigned i = 0; i < 100; ++i) {
        CHECK(folding.add(LogLevel::error, "again", start + i * 13s).size() == 1);
    }
    CHECK(folding.end_all().empty());
}

TEST_CASE("no number of kinds takes more room: the oldest count comes early") {
    LogFolding folding;
    written(folding, 8, "oldest", start);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < 10 * LogFolding::most_kinds; ++i) {
        for (const auto& line : folding.add(LogLevel::error, "kind " + std::string(i + 1, 'x'), start + 1s)) {
            lines.push_back(line.text.substr(0, 30));
        }
    }
    CHECK(lines.size() == 10 * LogFolding::most_kinds + 1);
    CHECK(lines.at(LogFolding::most_kinds - 1) == "oldest ... repeated 3 times");
    CHECK(texts(folding.add(LogLevel::error, "oldest", start + 2s)) == Texts{"oldest"});
}
