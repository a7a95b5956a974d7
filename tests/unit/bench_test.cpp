// SPDX-License-Identifier: Apache-2.0
// The parts of the load generator that its figures rest on.
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/fastcgi_writer.h"
#include "tests/bench/engine.h"
#include "tests/bench/fastcgi_answer.h"
#include "tests/bench/latency.h"
#include "tests/bench/options.h"
#include "tests/bench/target.h"
#include "tests/support/every_split.h"
#include "tests/unit/bench_stage.h"

using namespace cede::bench;
using namespace std::string_literals;
namespace fcgi = cede::protocol::fastcgi;
using cede::protocol::Bytes;
using cede::protocol::MutableBytes;
using cede::tests::as_bytes;
using cede::tests::as_text;
using cede::tests::every_split;
using cede::tests::Finishes;
using cede::tests::Server;
using cede::tests::step_until;
using cede::tests::step_until_counted;

namespace {

std::string answer_bytes(std::string_view output, std::uint32_t app_status = 0) {
    std::vector<std::byte> bytes(output.size() + 100);
    const MutableBytes out{bytes};
    std::size_t size =
        fcgi::write_stream(out, fcgi::RecordType::stdout_stream, request_id, as_bytes(output), {.padding = 3})
            .value();
    size += fcgi::write_end_request(out.subspan(size), request_id, app_status,
                                    fcgi::ProtocolStatus::request_complete)
                .value();
    return std::string{as_text(Bytes{bytes}.first(size))};
}

Failure read_answer(const std::string& bytes, std::string_view expected) {
    Failure result = Failure::none;
    every_split(as_bytes(bytes), [&](std::span<const Bytes> pieces) {
        FastcgiAnswer answer;
        BodyCheck body{expected};
        CHECK(answer.untouched());
        Answer::State state = Answer::State::incomplete;
        for (const Bytes piece : pieces) {
            CHECK(state == (piece.empty() ? state : Answer::State::incomplete));
            state = answer.feed(piece, body);
        }
        CHECK(state == Answer::State::complete);
        result = answer.failure();
    });
    return result;
}

}  // namespace

TEST_CASE("percentiles are within one per cent and the maximum is exact") {
    LatencyHistogram histogram;
    for (Nanoseconds value = 1; value <= 1'000'000; ++value) {
        histogram.record(value);
    }
    for (const double share : {0.001, 0.5, 0.9, 0.99, 0.999}) {
        CHECK(static_cast<double>(histogram.percentile(share)) == doctest::Approx(share * 1e6).epsilon(0.01));
    }
    CHECK(histogram.percentile(1) == 1'000'000);
    CHECK(histogram.max() == 1'000'000);
    CHECK(histogram.mean() == doctest::Approx(500'000.5));
}

TEST_CASE("a histogram takes nothing, a negative duration and a year") {
    LatencyHistogram histogram;
    CHECK(histogram.percentile(0.5) == 0);
    CHECK(histogram.mean() == 0);
    histogram.record(-5);
    CHECK(histogram.percentile(1) == 0);
    histogram.record(365 * 24 * 3600 * second);
    CHECK(histogram.count() == 2);
    CHECK(histogram.max() == 365 * 24 * 3600 * second);
}

TEST_CASE("an answer cut at every byte is judged by its status and its body") {
    const std::string head = "X-A: b\r\nContent-type: text/html\r\n\r\n";
    CHECK(read_answer(answer_bytes(head + "hi"), "hi") == Failure::none);
    CHECK(read_answer(answer_bytes(head), "") == Failure::none);
    CHECK(read_answer(answer_bytes(head + "hi"), {}) == Failure::none);
    CHECK(read_answer(answer_bytes(head + "ho"), "hi") == Failure::body);
    CHECK(read_answer(answer_bytes(head + "h"), "hi") == Failure::body);
    CHECK(read_answer(answer_bytes(head + "hi!"), "hi") == Failure::body);
    CHECK(read_answer(answer_bytes("no head"), {}) == Failure::body);
    CHECK(read_answer(answer_bytes("Status: 404 Not Found\r\n\r\nhi"), "hi") == Failure::http_status);
    CHECK(read_answer(answer_bytes("Status: 201 Created\r\n\r\nhi"), "hi") == Failure::none);
    CHECK(read_answer(answer_bytes(head + "hi", 1), "hi") == Failure::app_status);
}

TEST_CASE("bytes behind an answer break the protocol") {
    FastcgiAnswer answer;
    BodyCheck body{"hi"};
    const std::string bytes = answer_bytes("A: b\r\n\r\nhi") + "x";
    CHECK(answer.feed(as_bytes(bytes), body) == Answer::State::complete);
    CHECK(answer.failure() == Failure::protocol);
}

TEST_CASE(
    "a request whose kept connection is closed under it is sent again once, on a new one, and counted") {
    const Server server;
    const std::vector<std::byte> request = web_server(Protocol::fastcgi).build_request("/a.php", true);
    const std::string answer = answer_bytes("Content-type: text/html\r\n\r\nhi");
    Engine engine{
        {.target = Target{server.path}, .pools = 1, .slots = 1, .expected = "hi", .check_body = true}};
    Finishes ends;
    engine.start(0, 0, Use::pooled, request, now());
    const int first = server.accept_one();
    Server::serve(first, request, answer);
    step_until(engine, ends, 1);

    engine.start(0, 0, Use::pooled, request, now());
    close(first);  // the request was on its way
    step_until_counted(engine, ends, &Counters::retries);
    const int second_one = server.accept_one();
    Server::serve(second_one, request, answer);
    step_until(engine, ends, 2);
    CHECK(ends.failures == std::vector{Failure::none, Failure::none});
    CHECK(engine.counters().retries == 1);
    CHECK(engine.counters().connects == 2);
    CHECK(engine.counters().reconnects == 1);

    close(second_one);  // nothing was asked
    step_until_counted(engine, ends, &Counters::closed_idle);
    engine.start(0, 0, Use::pooled, request, now());
    const int third = server.accept_one();
    close(third);
    step_until(engine, ends, 3);
    CHECK(ends.failures.back() != Failure::none);
    CHECK(engine.counters().retries == 1);
}

TEST_CASE("a pool gives out the connection that was idle for the shortest time") {
    const Server server;
    const std::vector<std::byte> request = web_server(Protocol::fastcgi).build_request("/a.php", true);
    const std::string answer = answer_bytes("Content-type: text/html\r\n\r\nhi");
    Engine engine{{.target = Target{server.path}, .pools = 2, .slots = 3}};
    Finishes ends;
    engine.start(0, 0, Use::pooled, request, now());
    engine.start(1, 0, Use::pooled, request, now());
    const int early = server.accept_one();
    const int late = server.accept_one();
    Server::serve(early, request, answer);
    step_until(engine, ends, 1);
    Server::serve(late, request, answer);
    step_until(engine, ends, 2);
    engine.start(0, 0, Use::pooled, request, now());
    Server::serve(late, request, answer);
    step_until(engine, ends, 3);
    CHECK(engine.counters().connects == 2);

    engine.start(2, 1, Use::pooled, request, now());  // the other pool has none
    const int other = server.accept_one();
    Server::serve(other, request, answer);
    step_until(engine, ends, 4);
    CHECK(engine.counters().connects == 3);
    for (const int connection : {early, late, other}) {
        close(connection);
    }
}

TEST_CASE("a request that is not answered within the patience is given up and counted as a timeout") {
    const Server server;
    const std::vector<std::byte> request = web_server(Protocol::fastcgi).build_request("/a.php", true);
    Engine engine{{.target = Target{server.path}, .pools = 1, .slots = 1, .patience = 20 * millisecond}};
    Finishes ends;
    engine.start(0, 0, Use::pooled, request, now());
    step_until(engine, ends, 1);
    CHECK(ends.failures.front() == Failure::timeout);
}

TEST_CASE("nobody listening is a failed connect") {
    const std::vector<std::byte> request = web_server(Protocol::fastcgi).build_request("/a.php", true);
    for (const std::string address : {"/nowhere/at/all", "127.0.0.1:1"}) {
        Engine engine{{.target = Target{address}, .pools = 1, .slots = 1}};
        Finishes ends;
        engine.start(0, 0, Use::pooled, request, now());
        step_until(engine, ends, 1);
        CHECK(ends.failures.front() == Failure::connect);
    }
}

TEST_CASE("a wrong option or address is refused with its name") {
    const auto parse = [](std::vector<std::string> words) {
        std::vector<char*> pointers;
        for (std::string& word : words) {
            pointers.push_back(word.data());
        }
        return parse_options(pointers);
    };
    CHECK(parse({"burst", "--address", "/s", "--script", "/a.php", "--clients", "40"})->clients == 40);
    CHECK(parse({"burst", "--address", "/s", "--script", "/a.php"})->protocol == Protocol::fastcgi);
    CHECK(parse({"burst", "--address", "/s", "--script", "/a.php", "--protocol", "lsapi"})->protocol ==
          Protocol::lsapi);
    CHECK_THROWS_AS(static_cast<void>(parse({"burst", "--protocol", "scgi"})), UsageError);
    CHECK_FALSE(parse({"--help"}).has_value());
    CHECK_THROWS_WITH_AS(static_cast<void>(parse({"closed", "--clients", "0"})),
                         "--clients 0: give a number from 1 to 50000", UsageError);
    CHECK_THROWS_AS(static_cast<void>(parse({"closed"})), UsageError);
    CHECK_THROWS_AS(static_cast<void>(parse({"closed", "burst"})), UsageError);
    CHECK_THROWS_AS(static_cast<void>(parse({"closed", "--wrong", "1"})), UsageError);
    CHECK_THROWS_AS(static_cast<void>(parse({"closed", "--rate"})), UsageError);
    for (const std::string address :
         {"localhost:1", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "[::1]"}) {
        CHECK_THROWS_AS(Target{address}, std::invalid_argument);
    }
}
