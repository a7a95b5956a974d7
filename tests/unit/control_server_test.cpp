// SPDX-License-Identifier: Apache-2.0
#include "pm/control_server.h"

#include <fcntl.h>
#include <string>

#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

#include "tests/unit/control_stage.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

constexpr const char* get_status = "GET /status HTTP/1.1\r\nHost: x\r\n\r\n";

std::string body_of(std::string_view answer) {
    return std::string{answer.substr(std::min(answer.find("\r\n\r\n") + 4, answer.size()))};
}

bool ok_in(std::string_view answer) {
    return boost::json::parse(body_of(answer)).at("ok").as_bool();
}

std::string message_in(std::string_view answer) {
    return boost::json::parse(body_of(answer)).at("message").as_string().c_str();
}

}  // namespace

TEST_CASE("a status is answered with the JSON and the end of the connection") {
    ControlStage stage;
    stage.status = R"({"x":1})";
    const std::string answer = stage.answer_to(get_status);
    CHECK(has_status(answer, 200));
    CHECK(answer.find("Content-Type: application/json\r\n") != std::string::npos);
    CHECK(answer.find("Connection: close\r\n") != std::string::npos);
    CHECK(body_of(answer) == "{\"x\":1}\n");
}

TEST_CASE("a large status arrives whole at a reader who takes his time") {
    ControlStage stage;
    stage.status = '"' + std::string(3'000'000, 'x') + '"';
    const UniqueFd client = stage.connect(get_status);
    for (int i = 0; i < 5; ++i) {
        stage.turn();
    }
    const auto answer = stage.rest(client.get());
    REQUIRE(answer.has_value());
    CHECK(body_of(*answer) == stage.status + "\n");
}

TEST_CASE("a command waits for its outcome, good or not") {
    ControlStage stage;
    const UniqueFd good = stage.connect(post("/reload"));
    const UniqueFd bad = stage.connect(post("/children", R"({"children": 12})"));
    CHECK(stage.done == std::vector<std::string>{"reload", "children 12"});
    CHECK(stage.silent(good.get()));
    CHECK(stage.silent(bad.get()));
    stage.waiting.at(0)({true, "generation 2 serves"});
    stage.waiting.at(1)({false, "no"});
    const std::string done = stage.rest(good.get()).value_or("");
    CHECK(has_status(done, 200));
    CHECK(ok_in(done));
    CHECK(message_in(done) == "generation 2 serves");
    const std::string not_done = stage.rest(bad.get()).value_or("");
    CHECK(has_status(not_done, 409));
    CHECK_FALSE(ok_in(not_done));
    stage.waiting.at(0)({false, "a second answer is nothing"});
}

TEST_CASE("an answer is on its way when the action has given it, without another turn of the loop") {
    ControlStage stage;
    const UniqueFd client = stage.connect(post("/stop"));
    stage.waiting.at(0)({true, "stopped"});
    char bytes[1000];
    const ssize_t got = ::recv(client.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    REQUIRE(got > 0);
    CHECK(has_status({bytes, static_cast<std::size_t>(got)}, 200));
}

TEST_CASE("a stop is graceful unless it is said to be fast") {
    ControlStage stage;
    const UniqueFd clients[] = {stage.connect(post("/stop")),
                                stage.connect(post("/stop", R"({"fast":false})")),
                                stage.connect(post("/stop", R"({"fast":true})"))};
    CHECK(stage.done == std::vector<std::string>{"stop", "stop", "stop fast"});
}

TEST_CASE("wrong arguments are refused and nothing is done") {
    ControlStage stage;
    for (const char* const body :
         {"", "{}", R"({"children":0})", R"({"children":10001})", R"({"children":-1})", R"({"children":1.5})",
          R"({"children":"12"})", R"({"number":12})", R"({"children":12,"x":1})", "12", "{",
          R"({"children":18446744073709551617})"}) {
        CAPTURE(body);
        CHECK(has_status(stage.answer_to(post("/children", body)), 422));
    }
    CHECK(has_status(stage.answer_to(post("/stop", R"({"fast":1})")), 422));
    CHECK(has_status(stage.answer_to(post("/reload", R"({"fast":true})")), 422));
    CHECK(stage.done.empty());
}

TEST_CASE("unknown commands and wrong methods are refused") {
    ControlStage stage;
    CHECK(has_status(stage.answer_to("GET / HTTP/1.1\r\n\r\n"), 404));
    CHECK(has_status(stage.answer_to("GET /status/ HTTP/1.1\r\n\r\n"), 404));
    CHECK(has_status(stage.answer_to(post("/status")), 405));
    const std::string get_stop = stage.answer_to("GET /stop HTTP/1.1\r\n\r\n");
    CHECK(has_status(get_stop, 405));
    CHECK(get_stop.find("Allow: POST\r\n") != std::string::npos);
    CHECK(has_status(stage.answer_to("HEAD /stop HTTP/1.1\r\n\r\n"), 405));
    CHECK(stage.done.empty());
}

TEST_CASE("garbage and oversize are refused, an end in the middle is the end") {
    ControlStage stage;
    CHECK(has_status(stage.answer_to("\x01\x01\x02garbage\r\n\r\n"), 400));
    CHECK(has_status(stage.answer_to("GET /status HTTP/9.9\r\n\r\n"), 400));
    CHECK(has_status(stage.answer_to("POST /stop HTTP/1.1\r\nContent-Length: x\r\n\r\n"), 400));
    CHECK(has_status(stage.answer_to("GET /status HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n"),
                     413));
    CHECK(has_status(stage.answer_to(post("/stop", std::string(9000, 'x'))), 413));
    const UniqueFd half = stage.connect("GET /sta");
    ::shutdown(half.get(), SHUT_WR);
    CHECK(stage.rest(half.get()) == "");
    CHECK(stage.done.empty());
}

TEST_CASE("a request that comes byte by byte is one") {
    ControlStage stage;
    const std::string request = post("/stop", R"({"fast":true})");
    const UniqueFd client = stage.connect();
    for (const char byte : request) {
        CHECK(send_text(client.get(), {&byte, 1}));
        stage.turn();
    }
    CHECK(stage.done == std::vector<std::string>{"stop fast"});
}

TEST_CASE("whoever leaves while he waits frees his place, and his answer goes nowhere") {
    ControlStage stage;
    const auto before = descriptors_of().size();
    UniqueFd client = stage.connect(post("/reload"));
    client.reset();
    CHECK(stage.becomes([&] { return descriptors_of().size() == before; }));
    stage.waiting.at(0)({true, "done"});
}

TEST_CASE("whoever has only ended what he sends still gets his answer") {
    ControlStage stage;
    const UniqueFd client = stage.connect(post("/reload"));
    ::shutdown(client.get(), SHUT_WR);
    CHECK(stage.becomes([&] { return stage.waiting.size() == 1; }));
    for (int i = 0; i < 3; ++i) {
        stage.turn();
    }
    stage.waiting.at(0)({true, "done"});
    CHECK(has_status(stage.rest(client.get()).value_or(""), 200));
}

TEST_CASE("those who ask nothing make room for those who do") {
    ControlStage stage;
    std::vector<UniqueFd> idle;
    for (int i = 0; i < 40; ++i) {
        idle.push_back(stage.connect());
    }
    CHECK(has_status(stage.answer_to(get_status), 200));
    CHECK(at_end(idle.front().get()));
    CHECK(stage.silent(idle.back().get()));
}

TEST_CASE("those who wait for an outcome are not pushed out, and one more is told so") {
    ControlStage stage;
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 16; ++i) {
        clients.push_back(stage.connect(post("/reload")));
    }
    CHECK(stage.waiting.size() == 16);
    CHECK(has_status(stage.answer_to(get_status), 503));
    stage.waiting.front()({true, "done"});
    CHECK(has_status(stage.answer_to(get_status), 200));
    CHECK(stage.silent(clients.back().get()));
}

TEST_CASE("an upgrade gets the connection itself, and answers on it by itself") {
    ControlStage stage;
    const UniqueFd client = stage.connect(post("/upgrade"));
    REQUIRE(stage.handed.size() == 1);
    const int handed = stage.handed.front().release();
    CHECK(closes_on_exec(handed));
    CHECK((::fcntl(handed, F_GETFL) & O_NONBLOCK) != 0);
    stage.server.reset();  // as when the next program has taken over
    CHECK(stage.silent(client.get()));
    answer_raw(handed, {true, "upgraded"});
    const std::string answer = stage.rest(client.get()).value_or("");
    CHECK(has_status(answer, 200));
    CHECK(message_in(answer) == "upgraded");
    const Ends ends = socket_pair(SOCK_STREAM);
    answer_raw(::fcntl(ends.ours.get(), F_DUPFD_CLOEXEC, 0), {false, "no"});
    CHECK(has_status(stage.rest(ends.theirs.get()).value_or("still open").substr(0, 13), 409));
}

TEST_CASE("the listening socket can be given away, and served by another server") {
    ControlStage stage;
    const int before = stage.server->descriptor();
    UniqueFd listening = stage.server->release_acceptor();
    CHECK(listening.get() == before);
    CHECK(closes_on_exec(listening.get()));
    const UniqueFd early = stage.connect(get_status);
    CHECK(stage.silent(early.get()));
    ControlServer::Actions actions;
    actions.status_json = [] { return std::string{"2"}; };
    const ControlServer second{stage.loop, std::move(listening), std::move(actions)};
    CHECK(body_of(stage.rest(early.get()).value_or("")) == "2\n");
}

TEST_CASE("connections are not inherited by programs that are executed") {
    ControlStage stage;
    const auto before = descriptors_of();
    const UniqueFd client = stage.connect();
    int found = 0;
    for (const auto& [fd, target] : descriptors_of()) {
        if (!before.contains(fd)) {
            CHECK(closes_on_exec(fd));
            ++found;
        }
    }
    CHECK(found == 2);  // both ends
}

TEST_CASE("an action that throws is an answer, and the server goes on") {
    ControlStage stage;
    stage.server = nullptr;
    const UniqueFd listening{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    ControlStage other;
    ControlServer::Actions actions;
    actions.status_json = []() -> std::string { throw std::runtime_error{"no memory"}; };
    const ControlServer server{other.loop, other.server->release_acceptor(), std::move(actions)};
    for (int i = 0; i < 2; ++i) {
        const std::string answer = other.answer_to(get_status);
        CHECK(has_status(answer, 500));
        CHECK(message_in(answer) == "no memory");
    }
}

TEST_CASE("when the server goes, so do its connections") {
    ControlStage stage;
    const UniqueFd idle = stage.connect();
    const UniqueFd waiting = stage.connect(post("/reload"));
    stage.server.reset();
    stage.turn();
    CHECK(at_end(idle.get()));
    CHECK(at_end(waiting.get()));
    stage.waiting.at(0)({true, "too late"});
}
