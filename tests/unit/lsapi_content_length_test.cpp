// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_content_length.h"

#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/support/every_split.h"

using cede::protocol::Bytes;
using cede::protocol::lsapi::ContentLength;
using cede::tests::as_bytes;
using cede::tests::every_split;

namespace {

// However the text is cut, the number is the one that strtoll finds, or 0 for a negative one.
void check_as_strtoll(const std::string& text) {
    const long long number = std::strtoll(text.c_str(), nullptr, 10);
    every_split(as_bytes(text), [&](std::span<const Bytes> pieces) {
        ContentLength length;
        for (const Bytes piece : pieces) {
            length.feed(piece);
        }
        CHECK(length.value() == (number > 0 ? static_cast<std::uint64_t>(number) : 0));
    });
}

}  // namespace

TEST_CASE("a length of any form is what strtoll makes of it, cut at every byte") {
    for (const std::string_view text :
         {"",      "0",   "7",   "007",  "+7",  "-7", "--7", "+-7", "- 7", " 7",  " \t\n\v\f\r7",
          "\0167", "7 8", "7,8", "0x10", "1e3", "x7", " ",   "-",   "+",   "7\n", "\b7"}) {
        check_as_strtoll(std::string{text});
    }
    ContentLength length;
    length.feed(as_bytes(std::string_view{"7\0008", 3}));
    CHECK(length.value() == 7);
}

TEST_CASE("a length beyond 63 bits is the largest of them and does not go round") {
    for (const std::string_view text :
         {"9223372036854775806", "9223372036854775807", "9223372036854775808", "9223372036854775799",
          "9223372036854775810", "18446744073709551615", "18446744073709551616", "99999999999999999999",
          "10000000000000000000000000000000000000001", "-9223372036854775809"}) {
        check_as_strtoll(std::string{text});
    }
}

TEST_CASE("texts of digits, signs and blanks are read as strtoll reads them") {
    std::mt19937 random{17};
    constexpr std::string_view letters = "0123456789 +-\tx";
    for (int round = 0; round < 2'000; ++round) {
        std::string text(random() % 24, ' ');
        for (char& letter : text) {
            letter = letters[random() % (random() % 4 == 0 ? letters.size() : 10)];
        }
        check_as_strtoll(text);
    }
}
