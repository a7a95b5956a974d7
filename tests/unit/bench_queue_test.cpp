// SPDX-License-Identifier: Apache-2.0
// What the load generator's figures of the queue rest on.
#include <atomic>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/bench/fastcgi_answer.h"
#include "tests/bench/lsapi_answer.h"
#include "tests/bench/modes.h"
#include "tests/bench/slow_clients.h"
#include "tests/support/packets.h"
#include "tests/support/records.h"
#include "tests/unit/bench_stage.h"

using namespace cede::bench;
using namespace std::string_literals;
using cede::tests::as_bytes;
using cede::tests::Finishes;
using cede::tests::record;
using cede::tests::Server;
using cede::tests::step_until;

namespace {

std::string answer_with(std::string_view status, char protocol_status = 0, char app_status = 0) {
    return record(6, "Status: " + std::string{status} + "\r\nContent-Type: text/plain\r\n\r\nhi") +
           record(3, "\0\0\0"s + app_status + protocol_status + "\0\0\0"s);
}

template <typename Reader>
Failure failure_of(const std::string& bytes) {
    Reader answer;
    answer.open();
    answer.begin();
    BodyCheck body{"other"};
    REQUIRE(answer.feed(as_bytes(bytes), body) == Answer::State::complete);
    return answer.failure();
}

// Serves each connection in the order of their requests, on a thread of its own, until it is destroyed.
class Answering {
  public:
    explicit Answering(std::string answer) : answer_{std::move(answer)}, thread_{[this] { run(); }} {}
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;
    ~Answering() {
        over_ = true;
        thread_.join();
        for (const pollfd& each : watched_) {
            if (each.fd != server.listener) {
                close(each.fd);
            }
        }
    }

    const Server server{128};

  private:
    void run() {
        watched_.push_back({server.listener, POLLIN, 0});
        while (!over_) {
            poll(watched_.data(), watched_.size(), 5);
            if ((watched_[0].revents & POLLIN) != 0) {
                watched_.push_back({accept(server.listener, nullptr, nullptr), POLLIN, 0});
            }
            for (std::size_t each = watched_.size(); --each > 0;) {
                if (watched_[each].revents != 0) {
                    serve(each);
                }
            }
        }
    }
    void serve(std::size_t which) {
        // A request of the load generator is one write, and has come whole.
        char request[4096];
        const ssize_t size = recv(watched_[which].fd, request, sizeof request, MSG_DONTWAIT);
        if (size <= 0) {
            close(watched_[which].fd);
            watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(which));
            return;
        }
        send(watched_[which].fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }

    std::string answer_;
    std::vector<pollfd> watched_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

Options options_for(const Answering& answering) {
    Options options;
    options.address = answering.server.path;
    options.script = options.other_script = options.leaving_script = "/a.php";
    options.table = false;
    options.pools = 1;
    options.patience = 5 * second;
    return options;
}

bool says(const JsonObject& result, std::string_view what) {
    return result.text().find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a status of 503 is a refusal, and what else a web server would not take is none") {
    CHECK(failure_of<FastcgiAnswer>(answer_with("503 Service Unavailable")) == Failure::refused);
    CHECK(failure_of<FastcgiAnswer>(answer_with("503 Service Unavailable", 2)) == Failure::refused);
    CHECK(failure_of<FastcgiAnswer>(answer_with("503 Service Unavailable", 1)) == Failure::app_status);
    CHECK(failure_of<FastcgiAnswer>(answer_with("503 Service Unavailable", 0, 1)) == Failure::app_status);
    CHECK(failure_of<FastcgiAnswer>(answer_with("200 OK", 2)) == Failure::app_status);
    CHECK(failure_of<FastcgiAnswer>(answer_with("504 Gateway Timeout")) == Failure::http_status);
    CHECK(failure_of<FastcgiAnswer>(answer_with("200 OK")) == Failure::body);
    const auto lsapi = [](const std::string& head) {
        return failure_of<LsapiAnswer>(cede::tests::packet(3, head) + cede::tests::packet(4, "hi") +
                                       cede::tests::packet(5));
    };
    CHECK(lsapi("\0\0\0\0\xf7\1\0\0"s) == Failure::refused);
    CHECK(lsapi("\0\0\0\0\xf8\1\0\0"s) == Failure::http_status);
    CHECK(lsapi("\0\0\0\0\xc8\0\0\0"s) == Failure::body);
    CHECK(lsapi("\1\0\0\0\0\0\0\0\x0c\0Status: 503\0"s) == Failure::refused);
}

TEST_CASE("a refused request keeps its connection, and the next one is told to be on a kept one") {
    struct Told final : Listener {
        void finished(const Finished& what) override { all.push_back(what); }
        std::vector<Finished> all;
    } told;
    const Server server;
    const std::vector<std::byte> request = web_server(Protocol::fastcgi).build_request("/a.php", true);
    Engine engine{{.target = Target{server.path}, .pools = 1, .slots = 1}};
    const auto ask = [&](int connection, const std::string& answer) {
        const std::size_t wanted = told.all.size() + 1;
        Server::serve(connection, request, answer);
        for (const Nanoseconds end = now() + 10 * second; told.all.size() < wanted && now() < end;) {
            engine.step(told, end);
        }
        REQUIRE(told.all.size() == wanted);
    };
    engine.start(0, 0, Use::own, request, now());
    const int connection = server.accept_one();
    ask(connection, answer_with("503 Service Unavailable", 2));
    engine.start(0, 0, Use::own, request, now());
    ask(connection, answer_with("200 OK"));
    CHECK(told.all[0].failure == Failure::refused);
    CHECK_FALSE(told.all[0].reused);
    CHECK(told.all[1].failure == Failure::none);
    CHECK(told.all[1].reused);
    CHECK(engine.counters().connects == 1);
    close(connection);
}

TEST_CASE("a tally times refusals apart from answers") {
    Tally tally;
    tally.add({0, Failure::none, 0, 3 * second});
    tally.add({0, Failure::refused, 0, second});
    tally.add({0, Failure::timeout, 0, 9 * second});
    CHECK(tally.served() == 1);
    CHECK(tally.latency.max() == 3 * second);
    CHECK(tally.refusals.count() == 1);
    CHECK(tally.refusals.max() == second);
    CHECK(tally.failed() == 2);
}

TEST_CASE("a list in a result is a list of objects") {
    const std::vector<JsonObject> list{JsonObject{}.add("a", std::uint64_t{1}), JsonObject{}};
    CHECK(JsonObject{}.add("all", list).text() == R"({"all": [{"a": 1}, {}]})");
    CHECK(JsonObject{}.add("all", std::span<const JsonObject>{}).text() == R"({"all": []})");
}

TEST_CASE("a slow client sends one byte an interval, never the last, and connects again when it is closed") {
    const Server server;
    const Target target{server.path};
    const std::vector<std::byte> request{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
    SlowClients clients{target, request, 1, second};
    const Nanoseconds begin = now();
    clients.tick(begin);
    int connection = server.accept_one();
    for (int each = 1; each < 5; ++each) {
        clients.tick(begin + each * second);
        clients.tick(begin + each * second);
    }
    CHECK(clients.bytes == 2);
    CHECK(clients.connected() == 1);
    Server::expect(connection, as_bytes("ab"));
    Server::say(connection, "refused");
    close(connection);
    clients.tick(begin + 5 * second);
    CHECK(clients.closed == 1);
    CHECK(clients.told == 1);
    CHECK(clients.connects == 2);
    CHECK(clients.bytes == 3);
    connection = server.accept_one();
    Server::expect(connection, as_bytes("a"));
    close(connection);
}

TEST_CASE("groups start one after another, and their kept connections are told from new ones") {
    const Answering answering{answer_with("200 OK")};
    Options options = options_for(answering);
    options.groups = 2;
    options.clients = 2;
    options.stagger = 1100 * millisecond;
    options.think = 50 * millisecond;
    options.duration = 2 * second;
    const JsonObject result = run_groups(options);
    CHECK(says(result, R"("never_served": 0)"));
    CHECK(says(result, R"("new_connections": 4)"));
    CHECK(says(result,
               R"("seconds": [{"answers": 0, "kept_percent": 0.0000, "new_connections": 0, "failures": 0})"));
    CHECK(says(result, R"("connects": 4)"));
}

TEST_CASE("clients that leave are counted as gone, and the good ones behind them as served") {
    const Answering answering{answer_with("200 OK")};
    Options options = options_for(answering);
    options.clients = 5;
    options.at_once = 2;
    options.requests = 3;
    options.children = 2;
    options.stay = 50 * millisecond;
    const JsonObject served = run_leavers(options);
    CHECK(says(served, R"("ok": 3)"));
    CHECK(says(served, R"("leavers": {"connected": 5, "left": 0, "not_connected": 0, "answered": 5)"));
    CHECK(says(served, R"("stalls_served": 2)"));
    const Answering refusing{answer_with("503 Service Unavailable", 2)};
    options.address = refusing.server.path;
    CHECK(says(run_leavers(options), R"("answered": 0, "refused": 5)"));
    options.rate = 100;
    options.duration = 200 * millisecond;
    const JsonObject refused = run_overload(options);
    CHECK(says(refused, R"("refused": {"count": 20)"));
    CHECK(says(refused, R"("not_answered": 0)"));
    options.idle = 3;
    options.every = 50 * millisecond;
    CHECK(says(run_probe(options), R"("errors": {"refused": 4})"));
}
