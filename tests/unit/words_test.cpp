// SPDX-License-Identifier: Apache-2.0
#include "pm/words.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace std::string_view_literals;
using cede::pm::nearest;
using cede::pm::quoted;
using cede::pm::split_words;
using Words = std::vector<std::string>;

TEST_CASE("a line is split as a shell would split it") {
    struct Row {
        std::string_view line;
        Words words;
    };
    const std::vector<Row> rows{
        {"", {}},
        {" \t ", {}},
        {"/usr/bin/php-cgi8.2 -d  x=y", {"/usr/bin/php-cgi8.2", "-d", "x=y"}},
        {"\ta\tb ", {"a", "b"}},
        {"'a b' c", {"a b", "c"}},
        {"\"a b\" c", {"a b", "c"}},
        {"''", {""}},
        {"\"\" a", {"", "a"}},
        {"a'b'\"c\"d", {"abcd"}},
        {"a\\ b", {"a b"}},
        {"\\'", {"'"}},
        {R"("a\"b\\c\d")", {R"(a"b\c\d)"}},
        {R"("a\$b\`c")", {"a$b`c"}},
        {R"('a\b$c`d"e')", {R"(a\b$c`d"e)"}},
        {"'|&;<>()#'", {"|&;<>()#"}},
        {"a # b", {"a"}},
        {"a#b", {"a#b"}},
        {"a \\# b", {"a", "#", "b"}},
        {"# a", {}},
        {"a* [b]? ~c {d}", {"a*", "[b]?", "~c", "{d}"}},
        {"\xc3\xa4 \xff", {"\xc3\xa4", "\xff"}},
    };
    for (const Row& row : rows) {
        CAPTURE(row.line);
        const auto words = split_words(row.line);
        REQUIRE(words.has_value());
        CHECK(*words == row.words);
    }
}

TEST_CASE("what a shell would expand, run or read on for is refused with the reason") {
    struct Row {
        std::string_view line;
        std::string_view reason;
    };
    const std::vector<Row> rows{
        {"'a", "never closed"},
        {"a \"b", "never closed"},
        {"\"a\\\"", "never closed"},
        {"a \\", "can not be continued"},
        {"$HOME/x", "'$'"},
        {"\"$HOME\"", "'$'"},
        {"`id`", "'`'"},
        {"\"`id`\"", "'`'"},
        {"a | b", "'|'"},
        {"a; b", "';'"},
        {"a && b", "'&'"},
        {"a > b", "'>'"},
        {"a < b", "'<'"},
        {"(a)", "'('"},
        {"a)", "')'"},
        {"a\0b"sv, "NUL"},
        {"'a\0b'"sv, "NUL"},
        {"\\\0"sv, "NUL"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.line);
        const auto words = split_words(row.line);
        REQUIRE_FALSE(words.has_value());
        CHECK(words.error().find(row.reason) != std::string::npos);
    }
}

TEST_CASE("a misspelling finds the name that was meant, and nonsense finds none") {
    constexpr std::array names{"children"sv, "listen"sv, "listen-mode"sv, "user"sv};
    CHECK(nearest("childern", names) == "children");
    CHECK(nearest("Children", names) == "children");
    CHECK(nearest("list", names) == "listen");
    CHECK(nearest("listenmode", names) == "listen-mode");
    CHECK(nearest("usr", names) == "user");
    CHECK(nearest("frobnicate", names).empty());
    CHECK(nearest("", names).empty());
    CHECK(nearest("x", names).empty());
    CHECK(nearest(std::string(100000, 'c'), names).empty());
}

TEST_CASE("a quoted text stays on one short line") {
    CHECK(quoted("a b") == "'a b'");
    CHECK(quoted("a\nb\x7f") == "'a\\x0ab\\x7f'");
    CHECK(quoted(std::string(1000, 'x')).size() < 200);
}
