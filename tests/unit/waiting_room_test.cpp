// SPDX-License-Identifier: Apache-2.0
// Requests that wait with the supervisor, on real sockets: what becomes of them.
#include "pm/waiting_room.h"

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "children/clock.h"
#include "tests/support/packets.h"
#include "tests/support/records.h"
#include "tests/unit/dispatcher_stage.h"

using namespace cede::pm;
using namespace cede::tests;
using namespace std::chrono_literals;
using cede::children::ChildSays;
using cede::protocol::Protocol;

namespace {

std::string page(std::string_view name = "/a.php", bool keep = true) {
    return request(cede::tests::pair("SCRIPT_NAME", name), {}, keep);
}

Dispatcher::Patience patience(std::chrono::nanoseconds max_wait, Overload overload = Overload::fifo,
                              std::string ping = {}) {
    return {{max_wait, overload, false, std::move(ping)}, {}, 0ms};
}

// All children are busy, and one waits, who is left out of account.
class Full {
  public:
    explicit Full(const Dispatcher::Patience& patience, std::uint32_t children = 2, bool unix_socket = false)
        : stage{children, unix_socket} {
        stage.dispatcher().speak(Protocol::fastcgi);
        stage.dispatcher().set_patience(patience);
    }
    // One more client, whose request waits.
    UniqueFd ask(const std::string& bytes) {
        UniqueFd client = stage.arrive();
        CHECK(send_text(client.get(), bytes));
        return client;
    }
    void check() {
        stage.dispatcher().check();
        stage.turn();
    }
    // Checks as the supervisor's timer does, until it is so.
    template <typename Condition>
    bool checked_until(Condition condition) {
        return soon([&] {
            check();
            return condition();
        });
    }
    [[nodiscard]] Dispatcher::Tally tally() { return stage.dispatcher().tally(); }

    Stage stage;
};

}  // namespace

TEST_CASE(
    "what has stood in the listen queue for long waits with the supervisor, and goes to a child whole") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Full full{patience(10s), 2, unix_socket};
        const UniqueFd asked = full.ask(page());
        const UniqueFd silent_one = full.stage.arrive();
        const UniqueFd half = full.ask(page().substr(0, 20));
        full.stage.turn();
        REQUIRE(full.stage.mark() == Waiting::pressure);
        CHECK(full.tally().waiting.pulled == 0);
        REQUIRE(full.checked_until([&] { return full.tally().waiting.pulled == 3; }));
        CHECK(full.stage.dispatcher().waiting() == 1);
        CHECK(full.stage.dispatcher().parked() == 1);
        CHECK(full.stage.dispatcher().partial() == 1);
        const UniqueFd taken = full.stage.take_handed();
        REQUIRE(taken);
        CHECK(text_in(taken.get()) == page());
        CHECK((::fcntl(taken.get(), F_GETFL) & O_NONBLOCK) == 0);
        // The others when they have become whole.
        REQUIRE(send_text(half.get(), page().substr(20)));
        REQUIRE(send_text(silent_one.get(), page()));
        for (int i = 0; i < 2; ++i) {
            UniqueFd next;
            REQUIRE(full.checked_until([&] { return bool(next = full.stage.take_handed()); }));
            CHECK(text_in(next.get()) == page());
        }
    }
}

TEST_CASE("who is taken in has waited since its request came, as far as that can be known") {
    for (const bool unix_socket : {false, true}) {
        CAPTURE(unix_socket);
        Full full{patience(10s), 2, unix_socket};
        const std::uint64_t begun = cede::children::monotonic_ns();
        const UniqueFd asked = full.ask(page());
        full.stage.turn();
        std::this_thread::sleep_for(250ms);
        REQUIRE(full.checked_until([&] { return full.tally().waiting.pulled == 1; }));
        cede::children::Handoff message;
        const UniqueFd taken{cede::children::receive_message(full.stage.dispatcher().handoff_receiver(),
                                                             &message, sizeof message, false)
                                 .fd};
        REQUIRE(taken);
        constexpr std::uint64_t grain_ns = 20'000'000;  // of the kernel's clock
        CHECK(message.readable_since_ns + grain_ns >= begun);
        CHECK(message.readable_since_ns <= begun + 150'000'000);
    }
}

TEST_CASE("while children keep up, and in a drain, the supervisor accepts nothing") {
    Full calm{patience(40ms, Overload::fifo, "/ping")};
    calm.stage.set(0, ChildState::giving_up);
    const UniqueFd client = calm.ask(page());
    for (int i = 0; i < 20; ++i) {
        calm.check();
        std::this_thread::sleep_for(5ms);
    }
    CHECK(calm.tally().waiting.pulled == 0);
    Full draining{patience(40ms, Overload::fifo, "/ping")};
    draining.stage.dispatcher().begin_drain();
    const UniqueFd late = draining.ask(page());
    for (int i = 0; i < 20; ++i) {
        draining.check();
        std::this_thread::sleep_for(5ms);
    }
    CHECK(draining.stage.mark() == Waiting::pressure);
    CHECK(draining.tally().waiting.pulled == 0);
}

TEST_CASE(
    "a request that has waited too long gets a 503 within 20 ms of the limit, and keeps its connection") {
    Full full{patience(200ms)};
    const auto begun = std::chrono::steady_clock::now();
    const UniqueFd client = full.ask(page());
    full.stage.turn();
    std::string answer;
    REQUIRE(soon([&] {
        full.check();
        std::this_thread::sleep_for(1ms);
        return !(answer = text_in(client.get())).empty();
    }));
    const auto waited = std::chrono::steady_clock::now() - begun;
    CHECK(waited >= 190ms);
    CHECK(waited < 260ms);
    CHECK(answer.find("Status: 503") != std::string::npos);
    CHECK(answer.find("Retry-After: 1\r\n") != std::string::npos);
    CHECK(full.tally().waiting.overdue == 1);
    CHECK(full.stage.dispatcher().waiting() == 0);
    CHECK_FALSE(static_cast<bool>(full.stage.take_handed()));
    // It waits for the next one.
    CHECK(silent(client.get()));
    REQUIRE(send_text(client.get(), page("/b.php")));
    UniqueFd taken;
    REQUIRE(full.checked_until([&] { return bool(taken = full.stage.take_handed()); }));
    CHECK(text_in(taken.get()) == page("/b.php"));
}

TEST_CASE("a refused connection that is not to be kept ends behind its answer, and so does an unread body") {
    const std::string head = begin_record(true) + record(4, cede::tests::pair("CONTENT_LENGTH", "40000")) +
                             record(4, "") + record(5, std::string(33'000, 'b'));
    for (const std::string& bytes : {page("/a.php", false), head}) {
        Full full{patience(50ms)};
        const UniqueFd client = full.ask(bytes);
        full.stage.turn();
        std::string answer;
        REQUIRE(full.checked_until([&] { return !(answer = text_in(client.get())).empty(); }));
        CHECK(answer.find("Status: 503") != std::string::npos);
        CHECK(at_end(client.get()));
        CHECK(full.stage.dispatcher().being_closed() == 1);
        // What still comes is dropped: there is no reset before the peer has closed.
        CHECK(send_text(client.get(), "more"));
        full.check();
        CHECK(full.stage.dispatcher().being_closed() == 1);
        ::shutdown(client.get(), SHUT_WR);
        CHECK(full.checked_until([&] { return full.stage.dispatcher().being_closed() == 0; }));
    }
}

TEST_CASE("what stands in the kernel is taken back when it has waited too long, and nobody gets it twice") {
    Full full{patience(100ms), 10};
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 12; ++i) {
        Ends ends = socket_pair(SOCK_STREAM);
        REQUIRE(send_text(ends.theirs.get(), page()));
        full.stage.park(std::move(ends.ours));
        clients.push_back(std::move(ends.theirs));
    }
    full.stage.turn();
    full.stage.turn();
    CHECK(full.stage.dispatcher().waiting() == 12);
    // A child takes two, and the others are overdue.
    std::vector<UniqueFd> served;
    served.push_back(full.stage.take_handed());
    served.push_back(full.stage.take_handed());
    REQUIRE(full.checked_until([&] { return full.tally().waiting.overdue == 10; }));
    CHECK(full.stage.dispatcher().waiting() == 0);
    CHECK_FALSE(static_cast<bool>(full.stage.take_handed()));
    CHECK(text_in(served[0].get()) == page());
    CHECK(text_in(served[1].get()) == page());
    int refused = 0;
    for (const UniqueFd& client : clients) {
        refused += text_in(client.get()).find("503") != std::string::npos;
    }
    CHECK(refused == 10);
}

TEST_CASE("a request whose client has left while it waited is dropped, unless it is to be run") {
    for (const bool run : {false, true}) {
        CAPTURE(run);
        Dispatcher::Patience wanted = patience(0s);
        wanted.waiting.run_abandoned = run;
        Full full{wanted, 1};
        std::vector<UniqueFd> clients;
        for (int i = 0; i < 60; ++i) {
            clients.push_back(full.ask(page()));
        }
        full.stage.turn();
        REQUIRE(full.checked_until([&] { return full.tally().waiting.pulled == 60; }));
        const std::size_t in_queue = full.stage.dispatcher().holdings().queued.size();
        REQUIRE(in_queue > 10);
        clients.clear();
        if (run) {
            std::this_thread::sleep_for(150ms);
            full.check();
            CHECK(full.tally().waiting.abandoned == 0);
        } else {
            REQUIRE(full.checked_until([&] { return full.tally().waiting.abandoned == in_queue; }));
        }
    }
}

TEST_CASE("those that left before anybody looked are never handed over") {
    Full full{patience(0s), 1};
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 40; ++i) {
        clients.push_back(full.ask(page()));
    }
    const UniqueFd stays = full.ask(page("/stays"));
    clients.clear();
    full.stage.turn();
    REQUIRE(full.checked_until([&] { return full.tally().waiting.pulled == 41; }));
    CHECK(full.tally().waiting.abandoned == 40);
    CHECK(text_in(full.stage.take_handed().get()) == page("/stays"));
    CHECK_FALSE(static_cast<bool>(full.stage.take_handed()));
}

TEST_CASE("a ping is answered without a child while the others wait, on new and on parked connections") {
    Full full{patience(0s, Overload::fifo, "/ping")};
    const UniqueFd client = full.ask(page());
    const UniqueFd pinger = full.ask(page("/ping"));
    full.stage.turn();
    REQUIRE(full.stage.mark() == Waiting::pressure);
    std::string answer;
    REQUIRE(full.checked_until([&] { return !(answer = text_in(pinger.get())).empty(); }));
    CHECK(answer.find("pong") != std::string::npos);
    CHECK(answer.find("Cache-Control: no-cache") != std::string::npos);
    CHECK(silent(client.get()));
    // Again, on the same one, and only for exactly this name.
    REQUIRE(send_text(pinger.get(), page("/ping")));
    REQUIRE(full.checked_until([&] { return text_in(pinger.get()).find("pong") != std::string::npos; }));
    CHECK(full.tally().waiting.pings == 2);
    REQUIRE(send_text(pinger.get(), page("/pin") + page("/ping")));
    REQUIRE(full.checked_until([&] { return full.stage.dispatcher().waiting() == 2; }));
    CHECK(silent(pinger.get()));
}

TEST_CASE("LSAPI: a refusal is in its own words, and the connection is kept") {
    Full full{patience(60ms, Overload::fifo, "/ping")};
    full.stage.dispatcher().speak(Protocol::lsapi);
    const UniqueFd client = full.ask(example_request());
    full.stage.turn();
    std::string answer;
    REQUIRE(full.checked_until([&] { return !(answer = text_in(client.get())).empty(); }));
    CHECK(answer.starts_with("LS"));
    CHECK(answer.find("Retry-After: 1") != std::string::npos);
    CHECK(silent(client.get()));
    CHECK(full.stage.dispatcher().parked() == 1);
}

TEST_CASE("newest first once the queue has been standing, in order again when it is over") {
    Full full{patience(150ms, Overload::lifo), 4};
    std::vector<UniqueFd> clients;
    const auto ask = [&](const std::string& name) {
        Ends ends = socket_pair(SOCK_STREAM);
        REQUIRE(send_text(ends.theirs.get(), page(name)));
        full.stage.park(std::move(ends.ours));
        clients.push_back(std::move(ends.theirs));
        full.stage.turn();
        full.stage.turn();
    };
    ask("/first");
    REQUIRE(full.checked_until([&] { return full.tally().waiting.overdue == 1; }));
    for (int i = 0; i < 9; ++i) {
        ask("/" + std::to_string(i));
    }
    full.check();
    CHECK(text_in(full.stage.take_handed().get()) == page("/8"));
    CHECK(text_in(full.stage.take_handed().get()) == page("/7"));
    full.check();
    CHECK(text_in(full.stage.take_handed().get()) == page("/6"));
    CHECK(full.stage.dispatcher().waiting() == 6);
}

TEST_CASE("with reject nobody who would wait too long is let in, once the rate is known") {
    Full full{patience(1s, Overload::reject)};
    const UniqueFd waiting[] = {full.ask(page()), full.ask(page()), full.ask(page())};
    full.stage.turn();
    // Some four a second.
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < 800ms) {
        const auto halves = (std::chrono::steady_clock::now() - begun) / 500ms;
        full.stage.slot(0).requests = 2 * static_cast<std::uint64_t>(halves);
        full.check();
        std::this_thread::sleep_for(10ms);
    }
    CHECK(full.tally().waiting.overdue == 0);
    const auto asked = std::chrono::steady_clock::now();
    const UniqueFd late = full.ask(page());
    REQUIRE(full.checked_until([&] { return full.tally().waiting.overdue > 0; }));
    CHECK(std::chrono::steady_clock::now() - asked < 100ms);
    CHECK(text_in(late.get()).find("503") != std::string::npos);
}

TEST_CASE("who waits is served when children are free again, in the order in which they came") {
    Full full{patience(30s), 1};
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 50; ++i) {
        clients.push_back(full.ask(page("/" + std::to_string(i))));
    }
    full.stage.turn();
    REQUIRE(full.checked_until([&] { return full.tally().waiting.pulled == 50; }));
    for (int i = 0; i < 50; ++i) {
        UniqueFd taken;
        REQUIRE(full.checked_until([&] { return bool(taken = full.stage.take_handed()); }));
        REQUIRE(text_in(taken.get()) == page("/" + std::to_string(i)));
    }
    full.stage.calm_down();
}
