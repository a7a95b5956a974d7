// SPDX-License-Identifier: Apache-2.0
#include "pm/line_splitter.h"

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using cede::pm::LineSplitter;
using namespace std::string_literals;
using namespace std::string_view_literals;

namespace {

using Lines = std::vector<std::pair<std::string, std::uint64_t>>;

void feed(LineSplitter& splitter, std::string_view bytes, Lines& lines) {
    while (const auto line = splitter.next(bytes)) {
        lines.emplace_back(line->text, line->left_out);
    }
    CHECK(bytes.empty());
}

// All lines of `bytes`, which come in pieces of this size.
Lines lines_of(std::string_view bytes, std::size_t piece, std::size_t longest = 100) {
    LineSplitter splitter{longest};
    Lines lines;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        feed(splitter, bytes.substr(at, piece), lines);
    }
    if (const auto rest = splitter.rest()) {
        lines.emplace_back(rest->text, rest->left_out);
    }
    CHECK_FALSE(splitter.incomplete());
    return lines;
}

}  // namespace

TEST_CASE("lines are the same however their bytes are cut, and no byte is changed") {
    const std::string text = "one\n\ntwo\0three\r\n\x1b[31m\xff\xc3\n\xe2\x82\xac end"s;
    const Lines expected{
        {"one", 0}, {"", 0}, {"two\0three\r"s, 0}, {"\x1b[31m\xff\xc3", 0}, {"\xe2\x82\xac end", 0}};
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        CAPTURE(piece);
        CHECK(lines_of(text, piece) == expected);
    }
}

TEST_CASE("of a line that is too long the beginning is kept and the others counted") {
    for (const std::size_t size : {99U, 100U, 101U, 100000U}) {
        CAPTURE(size);
        const std::string line(size, 'x');
        const Lines expected{{line.substr(0, 100), size > 100 ? size - 100 : 0}, {"next", 0}};
        for (const std::size_t piece : {1U, 7U, 99U, 100U, 101U, 200000U}) {
            CHECK(lines_of(line + "\nnext\n", piece) == expected);
            CHECK(lines_of(line + "\nnext", piece) == expected);
        }
    }
}

TEST_CASE("a character that would be cut is left out as a whole") {
    for (const std::string_view character : {"\xc3\xa9"sv, "\xe2\x82\xac"sv, "\xf0\x9f\x98\x80"sv}) {
        const std::size_t length = character.size();
        for (std::size_t before = 10 - length; before <= 10; ++before) {
            CAPTURE(before);
            const std::string line = std::string(before, 'x') + std::string{character} + "yyyyyyyyyyyy";
            const std::string kept = line.substr(0, before + length <= 10 ? 10 : before);
            for (const std::size_t piece : {1U, 3U, 50U}) {
                CHECK(lines_of(line, piece, 10) == Lines{{kept, line.size() - kept.size()}});
            }
        }
    }
}

TEST_CASE("bytes that are no characters are cut where the room ends") {
    CHECK(lines_of(std::string(20, '\x80'), 50, 10) == Lines{{std::string(10, '\x80'), 10}});
    CHECK(lines_of("12345678\xff"
                   "1zzz",
                   50, 10) == Lines{{"12345678\xff"
                                     "1",
                                     3}});
}

TEST_CASE("a line that just fits is whole, although its last character is not") {
    CHECK(lines_of("123456789\xc3\n", 50, 10) == Lines{{"123456789\xc3", 0}});
}

TEST_CASE("what comes behind the rest of a line is a line of its own") {
    LineSplitter splitter{100};
    Lines lines;
    CHECK_FALSE(splitter.rest());
    feed(splitter, "half", lines);
    CHECK(splitter.incomplete());
    CHECK(splitter.rest()->text == "half");
    CHECK_FALSE(splitter.incomplete());
    CHECK_FALSE(splitter.rest());
    feed(splitter, " and half\n", lines);
    CHECK(lines == Lines{{" and half", 0}});
    feed(splitter, "", lines);
    CHECK_FALSE(splitter.incomplete());
}

TEST_CASE("whatever comes, every byte is in a line, was counted, or is a line feed") {
    std::minstd_rand random{1};
    for (int round = 0; round < 300; ++round) {
        std::string bytes(random() % 2000, '\0');
        for (char& byte : bytes) {
            byte = random() % 40 == 0 ? '\n' : static_cast<char>(random() % 256);
        }
        std::size_t line_feeds = 0;
        for (const char byte : bytes) {
            line_feeds += byte == '\n' ? 1 : 0;
        }
        std::uint64_t seen = 0;
        const Lines lines = lines_of(bytes, 1 + random() % 300, 1 + random() % 60);
        for (const auto& [text, left_out] : lines) {
            CHECK(text.size() <= 60);
            seen += text.size() + left_out;
        }
        CHECK(seen + line_feeds == bytes.size());
        CHECK(lines.size() - line_feeds <= 1);
    }
}
