// SPDX-License-Identifier: Apache-2.0
// The load generator as a worker of OpenLiteSpeed.
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/lsapi_request_reader.h"
#include "protocol/lsapi_writer.h"
#include "tests/bench/engine.h"
#include "tests/bench/lsapi_answer.h"
#include "tests/support/every_split.h"
#include "tests/support/listening.h"
#include "tests/unit/bench_stage.h"

using namespace cede::bench;
using namespace std::string_literals;
namespace lsapi = cede::protocol::lsapi;
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

template <typename Write>
std::string packet(Write&& write) {
    std::vector<std::byte> bytes(65536);
    const std::size_t size = write(MutableBytes{bytes}).value();
    return std::string{as_text(Bytes{bytes}.first(size))};
}

const std::string received = packet([](auto out) { return lsapi::write_req_received(out); });
const std::string end = packet([](auto out) { return lsapi::write_resp_end(out); });
const std::string conn_close = packet([](auto out) { return lsapi::write_conn_close(out); });

std::string head(std::int32_t status, std::vector<std::string_view> lines = {"Content-type: text/html"}) {
    return packet([&](auto out) { return lsapi::write_resp_header(out, status, lines); });
}
std::string body(std::string_view text) {
    return packet([&](auto out) { return lsapi::write_resp_stream(out, as_bytes(text)); });
}
std::string log_line(std::string_view text) {
    return packet([&](auto out) { return lsapi::write_stderr_stream(out, as_bytes(text)); });
}
const std::string served = received + head(200) + body("hi") + end;

struct Read {
    Failure failure = Failure::none;
    bool closing = false;
    bool operator==(const Read&) const = default;
};

Read read_answer(const std::string& bytes, std::string_view expected = "hi") {
    Read result;
    every_split(as_bytes(bytes), [&](std::span<const Bytes> pieces) {
        LsapiAnswer answer;
        answer.open();
        answer.begin();
        BodyCheck check{expected};
        bool complete = false;
        bool broken = false;
        for (const Bytes piece : pieces) {
            if (complete) {
                broken = broken || answer.feed_idle(piece) == Answer::Idle::broken;
            } else {
                complete = answer.feed(piece, check) == Answer::State::complete;
            }
        }
        CHECK(complete);
        result = {broken ? Failure::protocol : answer.failure(), answer.closing()};
    });
    return result;
}

struct Worker {
    explicit Worker(const Server& server, std::uint32_t slots = 1, std::uint32_t max_connections = 0,
                    Nanoseconds patience = 10 * second)
        : engine{{.target = Target{server.path},
                  .server = &web_server(Protocol::lsapi),
                  .pools = 1,
                  .max_connections = max_connections,
                  .slots = slots,
                  .patience = patience,
                  .expected = "hi",
                  .check_body = true}} {}

    void start(SlotIndex slot, Use use = Use::pooled) { engine.start(slot, 0, use, request, now()); }
    void step_until_ended(std::size_t wanted) { step_until(engine, ends, wanted); }
    void step_until_counted(std::uint64_t Counters::*counter, std::uint64_t wanted = 1) {
        cede::tests::step_until_counted(engine, ends, counter, wanted);
    }
    [[nodiscard]] const Counters& counters() const { return engine.counters(); }

    std::vector<std::byte> request = web_server(Protocol::lsapi).build_request("/w/a.php", true);
    Engine engine;
    Finishes ends;
};

// One whose queue is full until drain().
struct FullServer : Server {
    FullServer() : Server(0) {
        const Target target{"uds:/" + path};
        for (int fd = target.connect(); fd >= 0; fd = target.connect()) {
            fillers.push_back(fd);
            REQUIRE(fillers.size() < 100);
        }
        REQUIRE(errno == EAGAIN);
    }
    void drain() {
        REQUIRE(listen(listener, 8) == 0);
        for (const int fd : fillers) {
            close(accept_one());
            close(fd);
        }
        fillers.clear();
    }
    std::vector<int> fillers;
};

}  // namespace

TEST_CASE("an LSAPI request is one that lsphp accepts, with script, address and host") {
    const auto bytes = web_server(Protocol::lsapi).build_request("/w/a.php", true);
    lsapi::RequestReader reader;
    REQUIRE(reader.read(bytes) == cede::protocol::Outcome::done);
    CHECK(reader.size() == bytes.size());
    CHECK(reader.script_file() == "/w/a.php");
    CHECK(reader.script_name() == "/a.php");
    CHECK(reader.request_method() == "GET");
    CHECK(reader.body_length() == 0);
    CHECK(reader.header(lsapi::IndexedHeader::host) == "localhost");
    CHECK_THROWS_AS(
        static_cast<void>(web_server(Protocol::lsapi).build_request("/" + std::string(70'000, 'x'), true)),
        std::invalid_argument);
}

TEST_CASE("an LSAPI answer cut at every byte is judged by its status and its body") {
    CHECK(read_answer(served) == Read{});
    CHECK(read_answer(packet([](auto out) { return lsapi::write_pid(out, 4711); }) + log_line("a warning") +
                      head(0) + body("h") + body("i") + end) == Read{});
    CHECK(read_answer(received + head(201) + end, "") == Read{});
    CHECK(read_answer(received + head(404) + body("hi") + end).failure == Failure::http_status);
    CHECK(read_answer(received + head(0, {"Status: 500 No"}) + body("hi") + end).failure ==
          Failure::http_status);
    CHECK(read_answer(received + head(0, {"Status: 200 OK"}) + body("hi") + end) == Read{});
    CHECK(read_answer(received + head(200) + body("ho") + end).failure == Failure::body);
    CHECK(read_answer(received + head(200) + end).failure == Failure::body);
    CHECK(read_answer(received + body("hi") + end).failure == Failure::body);
    CHECK(read_answer(received + "LX" + std::string(20, '\0')).failure == Failure::protocol);
}

TEST_CASE("CONN_CLOSE is noticed in front of, inside and behind an answer, and breaks nothing") {
    const Read closing{Failure::none, true};
    CHECK(read_answer(conn_close + served) == closing);
    CHECK(read_answer(received + head(200) + body("hi") + conn_close + end) == closing);
    CHECK(read_answer(served + conn_close) == closing);
    CHECK(read_answer(served + received).failure == Failure::protocol);
}

TEST_CASE("a CONN_CLOSE of which a part came before the request leaves the answer readable") {
    LsapiAnswer answer;
    answer.open();
    CHECK(answer.feed_idle(as_bytes(conn_close.substr(0, 3))) == Answer::Idle::silent);
    answer.begin();
    BodyCheck check{"hi"};
    CHECK(answer.feed(as_bytes(conn_close.substr(3) + served), check) == Answer::State::complete);
    CHECK(answer.failure() == Failure::none);
    CHECK(answer.closing());
}

TEST_CASE("a lost request is sent three times in all, in place only if it was not acknowledged") {
    const WebServer& server = web_server(Protocol::lsapi);
    const Loss reused{.reused = true};
    CHECK(server.remedy(reused) == Remedy::reconnect);
    CHECK(server.remedy({.reused = true, .acknowledged = true}) == Remedy::another);
    CHECK(server.remedy({.reused = false}) == Remedy::another);
    CHECK(server.remedy({.connected = false}) == Remedy::another);
    CHECK(server.remedy({.earlier = 1, .reused = true}) == Remedy::another);
    CHECK(server.remedy({.earlier = 1, .reused = true, .others_are_idle = false}) == Remedy::reconnect);
    CHECK(server.remedy({.earlier = 2, .reused = true}) == Remedy::unavailable);
    CHECK(server.remedy({.earlier = 2}) == Remedy::unavailable);
}

TEST_CASE("a worker opens no more connections than it may, and the next one free takes the oldest request") {
    const Server server;
    Worker worker{server, 3, 1};
    worker.start(0);
    worker.start(1);
    worker.start(2);
    CHECK(worker.counters().connects == 1);
    CHECK(worker.counters().waited == 2);
    const int connection = server.accept_one();
    for (std::size_t served_so_far = 1; served_so_far <= 3; ++served_so_far) {
        Server::serve(connection, worker.request, served);
        worker.step_until_ended(served_so_far);
    }
    CHECK(worker.ends.failures == std::vector(3, Failure::none));
    CHECK(worker.counters().connects == 1);
    close(connection);
}

TEST_CASE("ten connections are a worker's limit unless told otherwise, its own ones not counted") {
    const Server server{64};
    Worker worker{server, 15};
    for (SlotIndex slot = 0; slot < 12; ++slot) {
        worker.start(slot);
    }
    CHECK(worker.counters().connects == 10);
    worker.start(12, Use::own);
    worker.start(13, Use::fresh);
    CHECK(worker.counters().connects == 12);
    CHECK(worker.counters().waited == 2);
}

TEST_CASE("a connection on which nothing is asked is closed when CONN_CLOSE comes") {
    const Server server;
    Worker worker{server};
    worker.start(0);
    const int first = server.accept_one();
    Server::serve(first, worker.request, served);
    worker.step_until_ended(1);
    Server::say(first, conn_close);
    worker.step_until_counted(&Counters::conn_closes);
    Server::expect_end(first);
    worker.start(0);
    const int second_one = server.accept_one();
    Server::serve(second_one, worker.request, served);
    worker.step_until_ended(2);
    CHECK(worker.ends.failures.back() == Failure::none);
    CHECK(worker.counters().reconnects == 1);
    CHECK(worker.counters().retries + worker.counters().resent == 0);
    close(second_one);
}

TEST_CASE("CONN_CLOSE that crosses a request closes the connection behind the answer") {
    const Server server;
    Worker worker{server};
    worker.start(0);
    const int connection = server.accept_one();
    Server::say(connection, conn_close);
    Server::serve(connection, worker.request, served);
    worker.step_until_ended(1);
    CHECK(worker.ends.failures == std::vector{Failure::none});
    CHECK(worker.counters().conn_closes == 1);
    Server::expect_end(connection);
}

TEST_CASE(
    "a reused connection lost before the acknowledgement is replaced at once, and its request sent again") {
    const Server server;
    Worker worker{server, 1, 1};
    worker.start(0);
    const int first = server.accept_one();
    Server::serve(first, worker.request, served);
    worker.step_until_ended(1);
    worker.start(0);
    close(first);  // the request was on its way
    worker.step_until_counted(&Counters::retries);
    const int second_one = server.accept_one();
    Server::serve(second_one, worker.request, served);
    worker.step_until_ended(2);
    CHECK(worker.ends.failures.back() == Failure::none);
    CHECK(worker.counters().resent == 0);
    close(second_one);
}

TEST_CASE("a request that loses its connection three times is counted as unavailable") {
    const Server server;
    Worker worker{server};
    worker.start(0);
    for (std::uint64_t attempt = 0; attempt < 3; ++attempt) {
        worker.step_until_counted(&Counters::resent, attempt);
        const int connection = server.accept_one();
        Server::serve(connection, worker.request, received);
        close(connection);
    }
    worker.step_until_ended(1);
    CHECK(worker.ends.failures.front() == Failure::unavailable);
    CHECK(worker.counters().connects == 3);
    CHECK(worker.counters().resent_acknowledged == 2);
}

TEST_CASE("a client is sent the second answer behind a part of the first") {
    const Server server;
    Worker worker{server};
    worker.start(0);
    const int first = server.accept_one();
    Server::serve(first, worker.request, received + head(200) + body("h"));
    close(first);
    worker.step_until_counted(&Counters::resent);
    const int second_one = server.accept_one();
    Server::serve(second_one, worker.request, served);
    worker.step_until_ended(1);
    CHECK(worker.ends.failures.front() == Failure::body);
    close(second_one);
}

TEST_CASE("a client that gives up makes its worker send ABORT_REQUEST and close") {
    const Server server;
    Worker worker{server, 1, 1, 20 * millisecond};
    worker.start(0);
    const int connection = server.accept_one();
    worker.step_until_ended(1);
    CHECK(worker.ends.failures.front() == Failure::timeout);
    CHECK(worker.counters().aborted == 1);
    Server::expect(connection, worker.request);
    Server::expect(connection, lsapi::bare_packet(lsapi::PacketType::abort_request));
    Server::expect_end(connection);
}

TEST_CASE("a full queue of the Unix socket makes a request wait, and costs it no attempt") {
    FullServer server;
    Worker worker{server};
    worker.start(0);
    CHECK(worker.counters().backlog_full == 1);
    server.drain();
    worker.step_until_counted(&Counters::connects);
    const int connection = server.accept_one();
    Server::serve(connection, worker.request, served);
    worker.step_until_ended(1);
    CHECK(worker.ends.failures.front() == Failure::none);
    CHECK(worker.counters().resent == 0);
    close(connection);
}

TEST_CASE("a request that still waits when its client gives up is never sent") {
    FullServer server;
    Worker worker{server, 1, 0, 20 * millisecond};
    worker.start(0);
    worker.step_until_ended(1);
    CHECK(worker.ends.failures.front() == Failure::timeout);
    CHECK(worker.counters().aborted == 0);
    server.drain();
    worker.start(0);
    CHECK(worker.counters().connects == 1);
}

TEST_CASE("a connect that takes two seconds is lost, and its request sent again") {
    const auto listener = cede::tests::listening_socket(cede::tests::loopback4());
    REQUIRE(listen(listener.get(), 0) == 0);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    const Target target{"127.0.0.1:" + std::to_string(ntohs(address.sin_port))};
    std::array<int, 4> fillers{};  // the queue takes one or two; what comes behind it gets no answer
    for (int& fd : fillers) {
        fd = target.connect();
    }
    Engine engine{{.target = target, .server = &web_server(Protocol::lsapi), .pools = 1, .slots = 1}};
    Finishes ends;
    const auto request = web_server(Protocol::lsapi).build_request("/a.php", true);
    const Nanoseconds begin = now();
    engine.start(0, 0, Use::pooled, request, begin);
    step_until_counted(engine, ends, &Counters::resent);
    CHECK(now() - begin >= 2 * second);
    CHECK(ends.failures.empty());
    for (const int fd : fillers) {
        close(fd);
    }
}

TEST_CASE("without keep-alive the worker closes behind the answer, though LSAPI keeps connections") {
    const Server server;
    Engine engine{{.target = Target{server.path},
                   .server = &web_server(Protocol::lsapi),
                   .keep_alive = false,
                   .pools = 1,
                   .slots = 1}};
    Finishes ends;
    const auto request = web_server(Protocol::lsapi).build_request("/a.php", false);
    engine.start(0, 0, Use::pooled, request, now());
    const int connection = server.accept_one();
    Server::serve(connection, request, served);
    step_until(engine, ends, 1);
    CHECK(ends.failures.front() == Failure::none);
    Server::expect_end(connection);
}
