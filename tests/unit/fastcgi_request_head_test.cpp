// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/fastcgi_reader.h"
#include "protocol/request_head.h"
#include "tests/support/every_split.h"
#include "tests/support/head.h"
#include "tests/support/records.h"

using namespace cede::protocol;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::begin_record;
using cede::tests::pair;
using cede::tests::record;
using cede::tests::request;

namespace {

const std::string plain = pair("REQUEST_METHOD", "GET") + pair("SCRIPT_FILENAME", "/a.php");

RequestHead head_of(std::string_view bytes) {
    return cede::tests::head_of(Protocol::fastcgi, bytes);
}

std::optional<std::string> find(std::string_view head, std::string_view name, std::size_t room = 64) {
    return cede::tests::find(Protocol::fastcgi, head, name, room);
}

std::string added(const std::string& bytes, std::string_view name, std::string_view value,
                  std::size_t room = 400) {
    return cede::tests::added(Protocol::fastcgi, bytes, name, value, room).value_or("nothing");
}

// The pairs of a head as PHP reads them, which knows no pair over two records.
std::string pairs_of(std::string_view bytes) {
    std::string all;
    fastcgi::RecordReader records;
    Bytes input = as_bytes(bytes);
    std::array<std::byte, 70000> storage;
    for (fastcgi::RecordEvent event; (event = records.next(input)) != fastcgi::RecordEvent::need_more;) {
        if (event == fastcgi::RecordEvent::content && records.header().type == fastcgi::RecordType::params) {
            fastcgi::NameValueReader pairs{storage};
            Bytes content = records.content();
            while (pairs.next(content) == Outcome::done) {
                all += cede::tests::as_text(pairs.name());
                all += "=";
                all += cede::tests::as_text(pairs.value());
                all += ";";
            }
            CHECK(pairs.finish() == Outcome::done);
        }
    }
    return all;
}

}  // namespace

TEST_CASE("a request of FastCGI is incomplete at each byte of its head and complete behind it") {
    const std::string params = begin_record(true) + record(4, plain, 3) + record(4, "", 5);
    const std::string whole = params + record(5, "body", 2) + record(5, "", 1);
    for (std::size_t size = 0; size <= whole.size(); ++size) {
        const RequestHead head = head_of(whole.substr(0, size));
        CAPTURE(size);
        REQUIRE(head.outcome == (size < params.size() ? Outcome::need_more : Outcome::done));
        if (head.outcome == Outcome::done) {
            CHECK(head.head_size == params.size());
            CHECK(head.id == 1);
            CHECK(head.keep_connection);
            CHECK(!head.management);
            CHECK(head.request_complete == (size == whole.size()));
            CHECK(head.request_size == (size == whole.size() ? whole.size() : 0));
            CHECK(head.body_here == std::min<std::size_t>(size - std::min(size, params.size() + 8), 4));
        }
    }
    CHECK(head_of(whole + begin_record(true)).request_size == whole.size());
    CHECK(!head_of(request(plain, {}, false)).keep_connection);
}

TEST_CASE("the end of the request before is a part of the head") {
    const std::string rest = record(5, "");
    const std::string whole = request(plain, "b");
    const RequestHead head = head_of(rest + rest + whole);
    CHECK(head.outcome == Outcome::done);
    CHECK(head.request_size == 16 + whole.size());
    CHECK(head_of(rest).outcome == Outcome::need_more);
    // PHP takes its padding for the next record.
    CHECK(head_of(record(5, "", 3) + whole).outcome == Outcome::unexpected_type);
    CHECK(find((rest + whole).substr(0, head.head_size), "REQUEST_METHOD") == "GET");
    CHECK(head_of(added(rest + whole, "N", "v")).request_size == 8 + 8 + 4 + whole.size());
}

TEST_CASE("what PHP closes a connection on is told from the bytes that it needs for it") {
    const auto outcome = [](std::string_view bytes) { return head_of(bytes).outcome; };
    CHECK(outcome("LS") == Outcome::bad_version);
    CHECK(outcome("\0"s) == Outcome::bad_version);
    CHECK(outcome("\2") == Outcome::need_more);
    std::string newer = request(plain);
    newer[0] = '\2';
    CHECK(outcome(newer) == Outcome::done);
    for (const unsigned type : {0U, 2U, 3U, 4U, 6U, 8U, 10U, 11U, 255U}) {
        CHECK(outcome(record(type, "").substr(0, 7)) == Outcome::need_more);
        CHECK(outcome(record(type, "")) == Outcome::unexpected_type);
    }
    CHECK(outcome(record(5, "x").substr(0, 8)) == Outcome::unexpected_type);
    CHECK(outcome(record(1, "1234567").substr(0, 8)) == Outcome::bad_body_size);
    CHECK(outcome(record(1, "123456789").substr(0, 8)) == Outcome::bad_body_size);
    for (const char role : {'\0', '\4', '\377'}) {
        CHECK(outcome(record(1, "\0"s + role + std::string(6, '\0'))) == Outcome::unknown_role);
    }
    CHECK(outcome(record(1, "\1\1"s + std::string(6, '\0'))) == Outcome::unknown_role);
    for (const char role : {'\1', '\2', '\3'}) {
        CHECK(outcome(record(1, "\0"s + role + std::string(6, '\0'))) == Outcome::need_more);
    }
    // Content and padding together above 65,535 bytes.
    const std::string largest = begin_record(true) + record(4, std::string(65435, 'x'), 100);
    CHECK(outcome(largest) == Outcome::need_more);
    CHECK(outcome(begin_record(true) + record(4, std::string(65436, 'x'), 100).substr(0, 8)) ==
          Outcome::bad_packet_size);
    CHECK(outcome(begin_record(true) + "\0"s) == Outcome::bad_version);
    CHECK(outcome(begin_record(true) + record(4, plain) + "\0"s) == Outcome::bad_version);
}

TEST_CASE("any record that is no PARAMS ends the head, and any that is no STDIN the body") {
    const std::string params = begin_record(true) + record(4, plain);
    for (const unsigned type : {0U, 1U, 2U, 3U, 6U, 8U, 9U, 255U}) {
        const RequestHead head = head_of(params + record(type, "12345678").substr(0, 8));
        CHECK(head.outcome == Outcome::done);
        CHECK(head.head_size == params.size());
        CHECK(head.request_complete);
        CHECK(head.request_size == params.size());
        const std::string body = params + record(4, "") + record(5, "abc");
        CHECK(!head_of(body).request_complete);
        const RequestHead broken_off = head_of(body + record(type, "1").substr(0, 8));
        CHECK(broken_off.request_complete);
        CHECK(broken_off.request_size == body.size());
        CHECK(broken_off.body_here == 3);
    }
    const RequestHead without_end = head_of(params + record(5, "ab") + record(5, ""));
    CHECK(without_end.head_size == params.size());
    CHECK(without_end.request_complete);
    CHECK(head_of(begin_record(true) + record(5, "")).head_size == 16);
}

TEST_CASE("GET_VALUES is a request of its own") {
    const std::string asked = record(9, pair("FCGI_MPXS_CONNS", ""), 2, 0);
    for (std::size_t size = 0; size < asked.size(); ++size) {
        CHECK(head_of(asked.substr(0, size)).outcome == Outcome::need_more);
    }
    const RequestHead head = head_of(asked + request(plain));
    CHECK(head.outcome == Outcome::done);
    CHECK(head.management);
    CHECK(head.keep_connection);
    CHECK(head.request_complete);
    CHECK(head.head_size == asked.size());
    CHECK(head.request_size == asked.size());
    CHECK(find(asked, "FCGI_MPXS_CONNS") == std::nullopt);
    CHECK(added(asked, "A", "b") == "nothing");
}

TEST_CASE("a variable is found wherever its pair is cut") {
    const std::string params = pair("A", "1") + pair("LONG", std::string(200, 'l')) + pair("", "empty") +
                               pair("SCRIPT_NAME", "/ping") + pair("NONE", "");
    for (std::size_t cut = 1; cut < params.size(); ++cut) {
        const std::string head = begin_record(true) + record(4, params.substr(0, cut), 1) +
                                 record(4, params.substr(cut)) + record(4, "");
        REQUIRE(find(head, "A") == "1");
        REQUIRE(find(head, "LONG", 200) == std::string(200, 'l'));
        REQUIRE(find(head, "SCRIPT_NAME") == "/ping");
        REQUIRE(find(head, "NONE") == "");
        REQUIRE(find(head, "SCRIPT_NAM") == std::nullopt);
        REQUIRE(find(head, "SCRIPT_NAMES") == std::nullopt);
        REQUIRE(find(head, "LONG", 199) == std::nullopt);
    }
}

TEST_CASE("of variables of one name the last counts") {
    const auto head = [](const std::string& params) {
        return begin_record(true) + record(4, params) + record(4, "");
    };
    CHECK(find(head(pair("A", "1") + pair("A", "22")), "A") == "22");
    CHECK(find(head(pair("A", "22") + pair("A", "1")), "A") == "1");
    CHECK(find(head(pair("A", "1") + pair("A", "too long")), "A", 3) == std::nullopt);
    CHECK(find(head(pair("A", "too long") + pair("A", "1")), "A", 3) == "1");
    // What is cut off is nobody's value.
    CHECK(find(head("\1\5A123"s), "A") == std::nullopt);
    CHECK(find(head("\1"s), "A") == std::nullopt);
    CHECK(find(head("\1\x80\0\0"s), "A") == std::nullopt);
    CHECK(find(head("\xff\xff\xff\xff\xff\xff\xff\xff"s + pair("A", "1")), "A") == std::nullopt);
}

TEST_CASE("a variable is added in front of the others, and what is behind the head moves") {
    const std::string whole = request(plain, "body") + "next";
    const std::string with = added(whole, "CEDE_QUEUE_USEC", "1234");
    CHECK(with.size() == whole.size() + 8 + 2 + 15 + 4);
    CHECK(pairs_of(with) == "CEDE_QUEUE_USEC=1234;REQUEST_METHOD=GET;SCRIPT_FILENAME=/a.php;");
    CHECK(with.ends_with(record(4, "") + record(5, "body") + record(5, "") + "next"));
    CHECK(find(with.substr(0, with.size() - 4), "CEDE_QUEUE_USEC") == "1234");
    const RequestHead head = head_of(with);
    CHECK(head.request_size == with.size() - 4);
    CHECK(head.head_size == head_of(whole).head_size + with.size() - whole.size());
    // Values whose length takes four bytes, and a head without PARAMS.
    CHECK(find(added(whole, "A", std::string(200, 'v')), "A", 300) == std::string(200, 'v'));
    CHECK(pairs_of(added(begin_record(true) + record(4, ""), "A", "b")) == "A=b;");
    CHECK(pairs_of(added(begin_record(true) + record(5, "x"), "A", "b")) == "A=b;");
}

TEST_CASE("a variable that does not fit is not added, and nothing is touched") {
    const std::string whole = request(plain + pair("A", "0"), "body");
    const std::size_t size = whole.size() + 8 + 2 + 1 + 3;
    CHECK(added(whole, "A", "123", size).size() == size);
    CHECK(added(whole, "A", "123", size - 1) == "nothing");
    CHECK(added(whole, "A", "123", whole.size()) == "nothing");
    CHECK(added(whole, "A", std::string(65529, 'v'), 200'000).size() == whole.size() + 8 + 5 + 65530);
    CHECK(added(whole, "A", std::string(65530, 'v'), 200'000) == "nothing");
    CHECK(added(whole, "", "123") == "nothing");
    CHECK(added(begin_record(true) + record(4, plain), "A", "123") == "nothing");
    CHECK(added(record(2, ""), "A", "123") == "nothing");
}

TEST_CASE("what PHP would show under the name of an added variable loses its name") {
    for (const std::string& forged :
         {"CEDE_QUEUE_USEC"s, "CEDE.QUEUE_USEC"s, "CEDE QUEUE.USEC"s, "  CEDE_QUEUE_USEC"s,
          "CEDE[QUEUE_USEC"s, "CEDE_QUEUE_USEC\0more"s, "CEDE_QUEUE_USEC[x]"s}) {
        const std::string hidden = "\0"s + forged.substr(1);
        const std::string left = hidden + "=1;" + "B=2;" + hidden + "=3;";
        const std::string params = pair(forged, "1") + pair("B", "2") + pair(forged, "3");
        const std::string with = added(request(params), "CEDE_QUEUE_USEC", "9");
        CHECK(pairs_of(with) == "CEDE_QUEUE_USEC=9;" + left);
        CHECK(find(with, "CEDE_QUEUE_USEC") == "9");
    }
    const std::string others = pair("CEDE_QUEUE_USEC2", "1") + pair("CEDE_QUEUE_USE", "2") + pair("", "3") +
                               pair("HTTP_CEDE_QUEUE_USEC", "4") + pair("cede_queue_usec", "5") +
                               pair("CEDE-QUEUE_USEC", "6");
    CHECK(added(request(others), "CEDE_QUEUE_USEC", "9").find(others) != std::string::npos);
    // A name over two records.
    for (std::size_t cut = 1; cut < 20; ++cut) {
        const std::string params = pair("CEDE_QUEUE_USEC", "1") + pair("B", "2");
        const std::string with = added(begin_record(true) + record(4, params.substr(0, cut)) +
                                           record(4, params.substr(cut)) + record(4, ""),
                                       "CEDE_QUEUE_USEC", "9");
        REQUIRE(find(with, "CEDE_QUEUE_USEC") == "9");
        REQUIRE(find(with, "\0EDE_QUEUE_USEC"s) == "1");
        REQUIRE(find(with, "B") == "2");
    }
}

TEST_CASE("bytes of any kind make no head of FastCGI that is not there") {
    std::mt19937 random{5};
    const std::array<std::string, 3> seeds{request(plain, "body"), record(9, pair("A", ""), 1, 0),
                                           record(5, "") + request(plain + pair("A", "1"))};
    int complete = 0;
    for (int round = 0; round < 20'000; ++round) {
        const std::string bytes = cede::tests::damaged(seeds[random() % seeds.size()], random);
        complete += cede::tests::check_any_bytes(Protocol::fastcgi, bytes) ? 1 : 0;
    }
    CHECK(complete > 1000);
}
