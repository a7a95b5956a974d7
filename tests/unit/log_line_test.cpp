// SPDX-License-Identifier: Apache-2.0
#include "pm/log_line.h"

#include <regex>
#include <string>
#include <string_view>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace cede::pm;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

// 2026-11-30T12:34:56.789Z
constexpr std::chrono::system_clock::time_point moment{1'796'042'096'789ms};

std::string text_line(LogLevel level, std::string_view text, LogStamp stamp = LogStamp::time) {
    return render(level, text, moment, {LogFormat::text, stamp}, 57);
}

boost::json::object json_line(std::string_view text, LogLevel level = LogLevel::warning) {
    const std::string line = render(level, text, moment, {LogFormat::json, LogStamp::time}, 57);
    CAPTURE(line);
    REQUIRE(line.find('\n') == line.size() - 1);
    return boost::json::parse(line).as_object();
}

}  // namespace

TEST_CASE("a text line has the time in UTC, the name, the level and the message") {
    CHECK(text_line(LogLevel::notice, "ready") == "2026-11-30T12:34:56.789Z cede: notice: ready\n");
    CHECK(render(LogLevel::error, "x", moment - 789ms, {}, 1) == "2026-11-30T12:34:56.000Z cede: error: x\n");
}

TEST_CASE("the journal gets the priority and no time") {
    CHECK(text_line(LogLevel::error, "x", LogStamp::journal) == "<3>error: x\n");
    CHECK(text_line(LogLevel::warning, "x", LogStamp::journal) == "<4>warning: x\n");
    CHECK(text_line(LogLevel::notice, "x", LogStamp::journal) == "<5>notice: x\n");
    CHECK(text_line(LogLevel::info, "x", LogStamp::journal) == "<6>info: x\n");
    CHECK(text_line(LogLevel::debug, "x", LogStamp::journal) == "<7>debug: x\n");
    CHECK(render(LogLevel::warning, "x", moment, {LogFormat::json, LogStamp::journal}, 1)
              .starts_with("<4>{\""));
}

TEST_CASE("syslog gets facility and priority, the local time, and who says it") {
    const std::string line = text_line(LogLevel::warning, "x", LogStamp::syslog);
    CAPTURE(line);
    CHECK(std::regex_match(line,
                           std::regex{R"(<28>[A-Z][a-z]{2} [ 123]\d \d\d:34:56 cede\[57\]: warning: x)"}));
    CHECK(render(LogLevel::error, "x", moment, {LogFormat::json, LogStamp::syslog}, 57).ends_with("\"x\"}"));
}

TEST_CASE("a text is one line, whatever is in it") {
    CHECK(on_one_line("a\nb\r\tc") == "a\\nb\\r\\tc");
    CHECK(on_one_line("\x1b[31m\x07\x7f\0end"s) == "\\x1b[31m\\x07\\x7f\\x00end");
    CHECK(on_one_line("\0"s) == "\\x00");
    CHECK(on_one_line("forged\n2026-11-30T12:34:56.789Z cede: error: x").find('\n') == std::string::npos);
}

TEST_CASE("UTF-8 passes, and what is none is written in hexadecimal") {
    CHECK(on_one_line("Grüße, 日本, \xf0\x9f\x98\x80") == "Grüße, 日本, \xf0\x9f\x98\x80");
    CHECK(on_one_line("\xff\xfe") == "\\xff\\xfe");
    CHECK(on_one_line("cut \xe6\x97") == "cut \\xe6\\x97");
    CHECK(on_one_line("\xe6(") == "\\xe6(");
    CHECK(on_one_line("\xc0\xaf") == "\\xc0\\xaf");
    CHECK(on_one_line("\xed\xa0\x80") == "\\xed\\xa0\\x80");
    CHECK(on_one_line("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("the control characters of C1 are escaped, for terminals obey them") {
    CHECK(on_one_line("\xc2\x9b"
                      "31m") == "\\xc2\\x9b31m");
    CHECK(on_one_line("\xc2\xa0") == "\xc2\xa0");
}

TEST_CASE("what ends a line or turns its direction in Unicode is escaped, in text and in JSON") {
    for (const std::string_view bad :
         {"\u2028", "\u2029", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068",
          "\u2069", "\u0080", "\u0085", "\u009b", "\u009f", "\x7f"}) {
        std::string escaped;
        for (const char byte : bad) {
            escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        }
        CHECK(on_one_line(fmt::format("a{}b", bad)) == "a" + escaped + "b");
        CHECK(json_line(fmt::format("a{}b", bad)).at("message").as_string() == "a" + escaped + "b");
        const LogStyle json{LogFormat::json, LogStamp::time};
        CHECK(render(LogLevel::notice, bad, moment, json, 1).find(bad) == std::string::npos);
    }
    for (const std::string_view good : {"\u00a0", "\u2027", "\u202f", "\u2065", "\u206a", "~"}) {
        CHECK(on_one_line(good) == good);
        CHECK(json_line(good).at("message").as_string() == good);
    }
}

TEST_CASE("every byte alone and in every company stays on one line of valid UTF-8") {
    for (int first = 0; first < 256; ++first) {
        for (int second = 0; second < 256; ++second) {
            const std::string text{static_cast<char>(first), static_cast<char>(second), 'x'};
            const std::string shown = on_one_line(text);
            CHECK(shown.ends_with('x'));
            CHECK(shown.find_first_of("\n\r\x1b\x7f") == std::string::npos);
            CHECK(on_one_line(shown) == shown);
        }
    }
}

TEST_CASE("a JSON line has time, level and message, and nothing that is not there") {
    const auto fields = json_line("ready children=5", LogLevel::notice);
    CHECK(fields.size() == 3);
    CHECK(fields.at("time").as_string() == "2026-11-30T12:34:56.789Z");
    CHECK(fields.at("level").as_string() == "notice");
    CHECK(fields.at("message").as_string() == "ready children=5");
}

TEST_CASE("a JSON line has the numbers of the child that the message is about") {
    for (const std::string_view text :
         {"child=3 gen=1 pid=57 was killed by signal 9 (Killed)", "child=3 gen=1 pid=57"}) {
        const auto fields = json_line(text);
        CHECK(fields.at("child").to_number<int>() == 3);
        CHECK(fields.at("gen").to_number<int>() == 1);
        CHECK(fields.at("pid").to_number<int>() == 57);
        CHECK(fields.at("message").as_string() == text);
    }
    const auto zygote = json_line("zygote gen=2 pid=99: /usr/bin/php-cgi8.2 ended");
    CHECK_FALSE(zygote.contains("child"));
    CHECK(zygote.at("gen").to_number<int>() == 2);
    CHECK(zygote.at("pid").to_number<int>() == 99);
    CHECK(json_line("can't fork child=7: Resource temporarily unavailable").at("child").to_number<int>() ==
          7);
    CHECK(json_line("pid=4, left behind by a script, has ended").at("pid").to_number<int>() == 4);
}

TEST_CASE("the words of others are no identity") {
    for (const std::string_view text :
         {"can't open '/x pid=1 child=2'", "the program said: child=5 pid=1", "children=4 xpid=5", "pid= 4",
          "pid=x", "pid=99999999999999999999999"}) {
        CHECK(json_line(text).size() == 3);
    }
}

TEST_CASE("a JSON line keeps what is in the message, and is UTF-8 even if that is not") {
    CHECK(json_line("a\nb\"c\\d\x1b é").at("message").as_string() == "a\nb\"c\\d\x1b é");
    CHECK(json_line("bad \xff\xe6\x97 end").at("message").as_string() == "bad \\xff\\xe6\\x97 end");
}

TEST_CASE("output has its author in front as text, and in fields of JSON, and is nothing else") {
    const std::string_view author = "child=3 gen=1 pid=57";
    const std::string text = "child=9 gen=9 pid=9: \"x\"\n<0>\x1b";
    CHECK(render(LogLevel::notice, text, moment, {}, 1, author) ==
          "2026-11-30T12:34:56.789Z cede: notice: child=3 gen=1 pid=57 output: child=9 gen=9 pid=9: "
          "\"x\"\\n<0>\\x1b\n");
    const std::string line =
        render(LogLevel::notice, text, moment, {LogFormat::json, LogStamp::time}, 1, author);
    const boost::json::object fields = boost::json::parse(line).as_object();
    CHECK(fields.at("source").as_string() == "output");
    CHECK(fields.at("message").as_string() == text);
    CHECK(fields.at("child").to_number<int>() == 3);
    CHECK(fields.at("gen").to_number<int>() == 1);
    CHECK(fields.at("pid").to_number<int>() == 57);
    CHECK_FALSE(json_line("child=3 gen=1 pid=57 output: x").contains("source"));
    const std::string zygote =
        render(LogLevel::notice, "x", moment, {LogFormat::json, LogStamp::time}, 1, "zygote gen=2 pid=8");
    CHECK(boost::json::parse(zygote).as_object().at("pid").to_number<int>() == 8);
    CHECK_FALSE(boost::json::parse(zygote).as_object().contains("child"));
}

TEST_CASE(
    "a line for the journal is shorter than what it splits, whatever is in it, and says what is missing") {
    constexpr std::size_t line_max = 48 * 1024;  // journald.conf(5)
    constexpr std::size_t total = 1'000'000;
    struct Case {
        std::string unit;
        std::string text;
        std::string in_json;
    };
    for (const Case& one : {Case{"x", "x", "x"}, Case{"\x01", "\\x01", "\x01"}, Case{"é", "é", "é"},
                            Case{"\xff", "\\xff", "\\xff"}, Case{"\"", "\"", "\""}, Case{"\\", "\\", "\\"},
                            Case{"\u2028", "\\xe2\\x80\\xa8", "\\xe2\\x80\\xa8"}}) {
        CAPTURE(one.text);
        std::string whole = "<0>";  // so that nothing ends where the limit is
        while (whole.size() < total) {
            whole += one.unit;
        }
        for (const LogFormat format : {LogFormat::text, LogFormat::json}) {
            for (const std::string_view author : {"", "child=3 gen=1 pid=57"}) {
                const std::string line =
                    render(LogLevel::notice, whole, moment, {format, LogStamp::journal}, 1, author, 7);
                CHECK(line.size() < line_max);
                REQUIRE(line.starts_with("<5>"));
                REQUIRE(line.find('\n') == line.size() - 1);
                const bool json = format == LogFormat::json;
                std::string message;
                if (json) {
                    message = boost::json::parse(line.substr(3)).at("message").as_string();
                } else {
                    message = line.substr(line.find("<0>"), line.size() - 1 - line.find("<0>"));
                }
                const std::size_t mark = message.rfind(" [");
                const std::string& shown = json ? one.in_json : one.text;
                REQUIRE(mark > 3);
                CHECK((mark - 3) % shown.size() == 0);
                CHECK(message.substr(mark - shown.size(), shown.size()) == shown);
                const std::size_t kept = 3 + (mark - 3) / shown.size() * one.unit.size();
                CHECK(message.substr(mark) ==
                      fmt::format(" [{} more bytes were left out]", whole.size() - kept + 7));
            }
        }
    }
}

TEST_CASE("elsewhere a line is as long as it is") {
    const std::string whole(100'000, 'x');
    CHECK(text_line(LogLevel::notice, whole).ends_with(": " + whole + "\n"));
    CHECK(json_line(whole).at("message").as_string() == whole);
    CHECK(text_line(LogLevel::notice, "short", LogStamp::journal) == "<5>notice: short\n");
    CHECK(render(LogLevel::notice, "x", moment, {}, 1, "me", 5)
              .ends_with("notice: me output: x [5 more bytes were left out]\n"));
}
