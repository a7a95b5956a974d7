// SPDX-License-Identifier: Apache-2.0
#include "pm/handoff.h"

#include <atomic>
#include <chrono>
#include <set>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <vector>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "children/zygote_protocol.h"
#include "tests/support/descriptors.h"

using namespace cede::pm;
using cede::children::receive_message;
using cede::children::Received;
using cede::children::UniqueFd;
using cede::tests::at_end;
using cede::tests::closes_on_exec;
using cede::tests::descriptors_of;
using cede::tests::Ends;
using cede::tests::socket_pair;
using cede::tests::soon;

namespace {

struct Taken {
    UniqueFd fd;
    std::uint64_t since_ns = 0;
};

Taken take(const Handoff& handoff) {
    cede::children::Handoff message;
    const Received received = receive_message(handoff.receiver(), &message, sizeof message, false);
    CHECK((received.fd < 0 || received.size == sizeof message));
    return {UniqueFd{received.fd}, message.readable_since_ns};
}

// A connection that can be told from others by what it has to read.
UniqueFd numbered(std::uint32_t number) {
    Ends ends = socket_pair(SOCK_STREAM);
    REQUIRE(::send(ends.theirs.get(), &number, sizeof number, 0) == sizeof number);
    return std::move(ends.ours);
}

std::uint32_t number_of(const UniqueFd& fd) {
    std::uint32_t number = 0xffffffff;
    (void)!::recv(fd.get(), &number, sizeof number, MSG_DONTWAIT);
    return number;
}

// What the loop does for events of the queue.
void turn(Poller& poller, Handoff& handoff) {
    for (const Poller::Event& event : poller.poll()) {
        CHECK(event.tag.kind == Poller::Kind::handoff);
        handoff.pump();
    }
}

void push(Handoff& handoff, UniqueFd connection) {
    handoff.push(std::move(connection));
    handoff.pump();
}

void park(const Handoff& handoff, const UniqueFd& connection) {
    const cede::children::ChildReport report{cede::children::ChildSays::park};
    REQUIRE(cede::children::send_message(handoff.receiver(), &report, sizeof report, connection.get()));
}

}  // namespace

TEST_CASE("a connection that is handed off reaches who takes it") {
    Poller poller;
    Handoff handoff{poller, 4};
    CHECK(handoff.waiting() == 0);
    CHECK(closes_on_exec(handoff.receiver()));
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto before = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U;
    push(handoff, numbered(7));
    CHECK(handoff.waiting() == 1);
    const Taken taken = take(handoff);
    REQUIRE(taken.fd);
    CHECK(number_of(taken.fd) == 7);
    CHECK(taken.since_ns >= before);
    CHECK(closes_on_exec(taken.fd.get()));
    CHECK(handoff.waiting() == 0);
    CHECK_FALSE(static_cast<bool>(take(handoff).fd));
}

TEST_CASE("the supervisor keeps no copy of what it has handed off") {
    Poller poller;
    Handoff handoff{poller, 4};
    Ends ends = socket_pair(SOCK_STREAM);
    push(handoff, std::move(ends.ours));
    take(handoff).fd.reset();
    CHECK(at_end(ends.theirs.get()));
}

TEST_CASE("more than the kernel takes wait in order, and all are counted") {
    constexpr std::uint32_t many = 500;
    for (const std::uint32_t children : {1U, 10U, 100U}) {
        CAPTURE(children);
        Poller poller;
        Handoff handoff{poller, children};
        for (std::uint32_t i = 0; i < many; ++i) {
            push(handoff, numbered(i));
            REQUIRE(handoff.waiting() == i + 1);
        }
        CHECK(handoff.backed_up());
        std::uint64_t latest = 0;
        for (std::uint32_t i = 0; i < many; ++i) {
            Taken taken;
            // Whoever takes makes room; the kernel says so, and the loop moves on what waits.
            REQUIRE(soon([&] {
                taken = take(handoff);
                turn(poller, handoff);
                return static_cast<bool>(taken.fd);
            }));
            REQUIRE(number_of(taken.fd) == i);
            REQUIRE(taken.since_ns >= latest);
            latest = taken.since_ns;
            REQUIRE(handoff.waiting() == many - i - 1);
        }
        CHECK_FALSE(handoff.backed_up());
    }
}

TEST_CASE("what is queued counts before it is moved on, and is moved on at one go") {
    Poller poller;
    Handoff handoff{poller, 100};
    for (std::uint32_t i = 0; i < 100; ++i) {
        handoff.push(numbered(i));
    }
    CHECK(handoff.waiting() == 100);
    CHECK_FALSE(static_cast<bool>(take(handoff).fd));
    handoff.pump();
    CHECK(handoff.waiting() == 100);
    CHECK_FALSE(handoff.backed_up());
    for (std::uint32_t i = 0; i < 100; ++i) {
        REQUIRE(number_of(take(handoff).fd) == i);
    }
}

TEST_CASE("what children park by the same socket arrives, and does not mix with what they take") {
    Poller poller;
    Handoff handoff{poller, 10};
    (void)poller.poll();
    std::vector<Handoff::Parked> parked;
    for (std::uint32_t i = 0; i < 3; ++i) {
        push(handoff, numbered(100 + i));
    }
    for (std::uint32_t i = 0; i < 100; ++i) {
        park(handoff, numbered(i));
    }
    CHECK_FALSE(poller.poll().empty());
    CHECK(handoff.waiting() == 3);
    CHECK(handoff.receive_parked(parked) == 100);
    for (std::uint32_t i = 0; i < 100; ++i) {
        REQUIRE(number_of(parked[i].connection) == i);
        CHECK(closes_on_exec(parked[i].connection.get()));
    }
    CHECK(handoff.receive_parked(parked) == 100);
    for (std::uint32_t i = 0; i < 3; ++i) {
        CHECK(number_of(take(handoff).fd) == 100 + i);
    }
    // The next one is told again.
    (void)poller.poll();
    park(handoff, numbered(7));
    CHECK_FALSE(poller.poll().empty());
}

TEST_CASE("all children may park several times over before the supervisor has read any of it") {
    for (const std::uint32_t children : {1U, 10U, 200U}) {
        Poller poller;
        Handoff handoff{poller, children};
        const UniqueFd connection = numbered(1);
        for (std::uint32_t i = 0; i < 4 * children; ++i) {
            park(handoff, connection);
        }
        std::vector<Handoff::Parked> parked;
        CHECK(handoff.receive_parked(parked) == 4 * children);
    }
}

TEST_CASE("resting ends when few are left, when time is up, and never begins without need") {
    using namespace std::chrono_literals;
    Poller poller;
    Handoff handoff{poller, 10};
    // It tells by the time it took, which on a busy machine may be long for nothing.
    CHECK(soon([&] { return !handoff.rest_until_low(1s); }));
    for (std::uint32_t i = 0; i < 200; ++i) {
        push(handoff, numbered(i));
    }
    const auto start = std::chrono::steady_clock::now();
    CHECK(handoff.rest_until_low(20ms));
    CHECK(std::chrono::steady_clock::now() - start >= 19ms);
    std::thread reader{[&] {
        for (int i = 0; i < 200; ++i) {
            (void)take(handoff);
        }
    }};
    CHECK(handoff.rest_until_low(30s));
    reader.join();
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    CHECK(handoff.waiting() < 190);
}

TEST_CASE("the queue in the kernel has room for one connection a child, and not for hundreds") {
    for (const std::uint32_t children : {4U, 10U, 50U}) {
        CAPTURE(children);
        Poller poller;
        Handoff handoff{poller, children};
        for (int i = 0; i < 600; ++i) {
            push(handoff, numbered(0));
        }
        std::uint32_t taken = 0;
        while (take(handoff).fd) {
            ++taken;
        }
        CHECK(taken >= children);
        CHECK(taken <= 12 * children);
    }
}

TEST_CASE("the kernel speaks up before the readers have emptied its queue") {
    constexpr std::uint32_t children = 10;
    Poller poller;
    Handoff handoff{poller, children};
    for (int i = 0; i < 200; ++i) {
        push(handoff, numbered(0));
    }
    (void)poller.poll();
    std::size_t in_kernel = 0;
    bool told = false;
    for (int i = 0; i < 200 && !told; ++i) {
        REQUIRE(static_cast<bool>(take(handoff).fd));
        told = !poller.poll().empty();
        int bytes = 0;
        ioctl(handoff.receiver(), FIONREAD, &bytes);
        in_kernel = static_cast<std::size_t>(bytes) / sizeof(cede::children::Handoff);
    }
    CHECK(told);
    CHECK(in_kernel > 0);
}

TEST_CASE("several processes share one queue, and each connection goes to one of them") {
    constexpr std::uint32_t many = 400;
    constexpr int readers = 4;
    Poller poller;
    Handoff handoff{poller, readers};
    struct Shared {
        std::atomic<std::uint32_t> seen[many];
        std::atomic<std::uint32_t> total;
    };
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const shared = static_cast<Shared*>(memory);
    std::vector<pid_t> pids;
    for (int i = 0; i < readers; ++i) {
        const pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            cede::children::Handoff message;
            alarm(30);
            while (shared->total < many) {
                const Received received =
                    receive_message(handoff.receiver(), &message, sizeof message, false);
                if (received.fd < 0) {
                    usleep(100);
                    continue;
                }
                const UniqueFd fd{received.fd};
                ++shared->seen[number_of(fd) % many];
                ++shared->total;
            }
            _exit(0);
        }
        pids.push_back(pid);
    }
    for (std::uint32_t i = 0; i < many; ++i) {
        push(handoff, numbered(i));
    }
    CHECK(soon(
        [&] {
            turn(poller, handoff);
            return shared->total == many;
        },
        std::chrono::seconds{20}));
    shared->total = many;
    for (const pid_t pid : pids) {
        int status = -1;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
    }
    std::uint32_t once = 0;
    for (const auto& count : shared->seen) {
        once += count == 1;
    }
    CHECK(once == many);
    CHECK(handoff.waiting() == 0);
    munmap(memory, sizeof(Shared));
}

TEST_CASE("a queue that goes closes what still waits in it") {
    std::vector<UniqueFd> peers;
    const auto before = descriptors_of().size();
    {
        Poller poller;
        Handoff handoff{poller, 1};
        for (int i = 0; i < 50; ++i) {
            Ends ends = socket_pair(SOCK_STREAM);
            push(handoff, std::move(ends.ours));
            peers.push_back(std::move(ends.theirs));
        }
    }
    CHECK(descriptors_of().size() == before + peers.size());
    for (const UniqueFd& peer : peers) {
        CHECK(at_end(peer.get()));
    }
}
