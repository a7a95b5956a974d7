// SPDX-License-Identifier: Apache-2.0
#include "pm/poller.h"

#include <cerrno>
#include <set>
#include <sys/epoll.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/descriptors.h"

using namespace cede::pm;
using cede::tests::closes_on_exec;
using cede::tests::Ends;
using cede::tests::pipe_pair;
using cede::tests::send_text;
using cede::tests::socket_pair;

namespace {

void fill(const Ends& pipe) {
    REQUIRE(::write(pipe.theirs.get(), "x", 1) == 1);
}

}  // namespace

TEST_CASE("nothing has happened, and asking does not wait for it") {
    Poller poller;
    CHECK(closes_on_exec(poller.fd()));
    CHECK(poller.poll().empty());
    const Ends pipe = pipe_pair();
    REQUIRE(poller.add(pipe.ours.get(), EPOLLIN, {}));
    CHECK(poller.poll().empty());
}

TEST_CASE("an event carries the tag that its descriptor was added with") {
    for (const auto kind : {Poller::Kind::listener, Poller::Kind::zygote, Poller::Kind::child,
                            Poller::Kind::parked, Poller::Kind::handoff}) {
        for (const std::uint32_t index : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
            for (const unsigned number : {0U, 1U, 0x7fffU, 0x8000U, 0xffffU}) {
                const auto age = static_cast<std::uint16_t>(number);
                Poller poller;
                const Ends pipe = pipe_pair();
                REQUIRE(poller.add(pipe.ours.get(), EPOLLIN, {kind, index, age}));
                fill(pipe);
                const auto events = poller.poll();
                REQUIRE(events.size() == 1);
                CHECK(events[0].tag.kind == kind);
                CHECK(events[0].tag.index == index);
                CHECK(events[0].tag.age == age);
                CHECK(events[0].flags == EPOLLIN);
            }
        }
    }
}

TEST_CASE("a removed descriptor says nothing more") {
    Poller poller;
    const Ends pipe = pipe_pair();
    REQUIRE(poller.add(pipe.ours.get(), EPOLLIN, {}));
    fill(pipe);
    poller.remove(pipe.ours.get());
    CHECK(poller.poll().empty());
    REQUIRE(poller.add(pipe.ours.get(), EPOLLIN, {Poller::Kind::child, 3, 4}));
    CHECK(poller.poll().size() == 1);
}

TEST_CASE("what can not be watched is refused with a reason") {
    Poller poller;
    CHECK_FALSE(poller.add(-1, EPOLLIN, {}));
    CHECK(errno == EBADF);
    const Ends pipe = pipe_pair();
    REQUIRE(poller.add(pipe.ours.get(), EPOLLIN, {}));
    CHECK_FALSE(poller.add(pipe.ours.get(), EPOLLIN, {}));
    CHECK(errno == EEXIST);
    poller.remove(-1);
}

TEST_CASE("a burst is told in batches, and nobody in it is forgotten") {
    constexpr std::uint32_t many = 700;
    Poller poller;
    std::vector<Ends> pipes;
    for (std::uint32_t i = 0; i < many; ++i) {
        pipes.push_back(pipe_pair());
        REQUIRE(poller.add(pipes.back().ours.get(), EPOLLIN, {Poller::Kind::parked, i, 0}));
        fill(pipes.back());
    }
    std::set<std::uint32_t> told;
    for (int turn = 0; turn < 3; ++turn) {
        const auto events = poller.poll();
        CHECK(events.size() <= 256);
        for (const Poller::Event& event : events) {
            told.insert(event.tag.index);
        }
    }
    CHECK(told.size() == many);
}

TEST_CASE("the poller itself is readable while it has something to tell") {
    Poller inner;
    Poller outer;
    REQUIRE(outer.add(inner.fd(), EPOLLIN, {}));
    CHECK(outer.poll().empty());
    const Ends pipe = pipe_pair();
    REQUIRE(inner.add(pipe.ours.get(), EPOLLIN, {}));
    fill(pipe);
    CHECK(outer.poll().size() == 1);
    char byte = 0;
    REQUIRE(::read(pipe.ours.get(), &byte, 1) == 1);
    CHECK(outer.poll().empty());
}
