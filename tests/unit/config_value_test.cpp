// SPDX-License-Identifier: Apache-2.0
#include "pm/config_value.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;
using namespace std::string_view_literals;

TEST_CASE("numbers are decimal, whole and within their range") {
    CHECK(parse_number("1", 1, 10000) == 1U);
    CHECK(parse_number("10000", 1, 10000) == 10000U);
    CHECK(parse_number("007", 1, 10000) == 7U);
    for (const std::string_view bad :
         {""sv, "0"sv, "10001"sv, "-1"sv, "+1"sv, " 1"sv, "1 "sv, "1.0"sv, "0x10"sv, "1e3"sv, "five"sv,
          "5\0"sv, "4294967297"sv, "99999999999999999999999999"sv}) {
        CAPTURE(bad);
        const auto number = parse_number(bad, 1, 10000);
        REQUIRE_FALSE(number.has_value());
        CHECK(number.error().find("1 to 10000") != std::string::npos);
    }
}

TEST_CASE("times have a unit, or are seconds") {
    CHECK(parse_time("30", 0ms) == 30s);
    CHECK(parse_time("30s", 0ms) == 30s);
    CHECK(parse_time("500ms", 0ms) == 500ms);
    CHECK(parse_time("2m", 0ms) == 2min);
    CHECK(parse_time("24h", 0ms) == 24h);
    CHECK(parse_time("0", 0ms) == 0ms);
    CHECK(parse_time("1ms", 1ms) == 1ms);
    for (const std::string_view bad :
         {""sv, "s"sv, "-1s"sv, "1.5s"sv, "1 s"sv, "30S"sv, "30sec"sv, "1d"sv, "25h"sv, "86401"sv,
          "18446744073709551615h"sv, "18446744073709551616"sv, "1s\0"sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_time(bad, 0ms).has_value());
    }
    CHECK_FALSE(parse_time("0", 1ms).has_value());
}

TEST_CASE("file modes are octal permission bits") {
    CHECK(parse_mode("0660") == 0660U);
    CHECK(parse_mode("660") == 0660U);
    CHECK(parse_mode("0000") == 0U);
    CHECK(parse_mode("0777") == 0777U);
    for (const std::string_view bad :
         {""sv, "66"sv, "0o660"sv, "0680"sv, "1777"sv, "-660"sv, "00660"sv, "rw-"sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_mode(bad).has_value());
    }
}

TEST_CASE("a keep-alive limit is a number of children or a percentage") {
    const auto number = parse_keepalive_limit("7");
    REQUIRE(number.has_value());
    CHECK(number->value == 7);
    CHECK_FALSE(number->percent);
    const auto share = parse_keepalive_limit("75%");
    REQUIRE(share.has_value());
    CHECK(share->value == 75);
    CHECK(share->percent);
    CHECK(parse_keepalive_limit("0").has_value());
    CHECK(parse_keepalive_limit("100%").has_value());
    for (const std::string_view bad :
         {""sv, "%"sv, "101%"sv, "-1%"sv, "7.5%"sv, "75 %"sv, "75%%"sv, "10001"sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_keepalive_limit(bad).has_value());
    }
}

TEST_CASE("words are taken exactly, and the error lists them") {
    CHECK(parse_protocol("auto") == cede::protocol::Protocol::unknown);
    CHECK(parse_protocol("fastcgi") == cede::protocol::Protocol::fastcgi);
    CHECK(parse_protocol("lsapi") == cede::protocol::Protocol::lsapi);
    CHECK(parse_give_up("park") == GiveUp::park);
    CHECK(parse_give_up("close") == GiveUp::close);
    CHECK(parse_log_level("debug") == LogLevel::debug);
    CHECK(parse_log_level("error") == LogLevel::error);
    CHECK(parse_yes_or_no("on") == true);
    CHECK(parse_yes_or_no("0") == false);
    CHECK(parse_give_up("Park").error().find("park, close") != std::string::npos);
    CHECK(parse_log_level("warn").error().find("warning") != std::string::npos);
    CHECK_FALSE(parse_yes_or_no("").has_value());
    CHECK_FALSE(parse_yes_or_no("maybe").has_value());
}
