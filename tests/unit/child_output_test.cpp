// SPDX-License-Identifier: Apache-2.0
#include "pm/child_output.h"

#include <chrono>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "pm/log.h"
#include "tests/support/descriptors.h"
#include "tests/support/output_desk.h"

using namespace cede::pm;
using namespace std::chrono_literals;
using cede::children::UniqueFd;
using cede::tests::child;
using cede::tests::descriptors_of;
using cede::tests::logged_by;
using cede::tests::OutputDesk;
using cede::tests::say;

TEST_CASE("lines of several processes come out under their names, at any level of the log") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd one = desk.start(0, "child=0 gen=1 pid=57");
        const UniqueFd other = desk.start(1, "child=1 gen=1 pid=58");
        say(one, "a\nhalf");
        say(other, "b\n");
        desk.turn();
        say(one, " and half\n");
        desk.turn();
        return "";
    });
    CHECK(lines == std::vector<std::string>{"notice: child=0 gen=1 pid=57 output: a",
                                            "notice: child=1 gen=1 pid=58 output: b",
                                            "notice: child=0 gen=1 pid=57 output: half and half"});
}

TEST_CASE("what is written before its process has a name is kept until then") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd end = desk.open(0);
        say(end, "early\n");
        if (desk.turn()) {
            return "it was read";
        }
        desk.output.begin(child(0), "me");
        desk.turn();
        return "";
    });
    CHECK(lines == std::vector<std::string>{"notice: me output: early"});
}

TEST_CASE("a line that does not end is written when it has waited for long enough") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd end = desk.start(0, "me");
        const auto start = ChildOutput::Clock::now();
        if (desk.output.due() != ChildOutput::Clock::time_point::max()) {
            return "due too early";
        }
        say(end, "one\nhalf");
        desk.turn(start);
        say(end, " more");
        desk.turn(start + 500ms);
        if (desk.output.due() != start + ChildOutput::patience) {
            return "due at another time";
        }
        desk.output.tend(start + 999ms);
        log_always(LogLevel::notice, "mark");
        desk.output.tend(start + 1s);
        if (desk.output.due() != ChildOutput::Clock::time_point::max()) {
            return "due again";
        }
        return "";
    });
    CHECK(lines ==
          std::vector<std::string>{"notice: me output: one", "notice: mark", "notice: me output: half more"});
}

TEST_CASE("at its end all that a process has written is there, although others still have its pipe") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        UniqueFd end = desk.start(0, "me");
        const UniqueFd left_behind{::fcntl(end.get(), F_DUPFD_CLOEXEC, 0)};
        say(end, "one\ntwo\nno end");
        end.reset();
        desk.output.end(child(0), "me");
        log_always(LogLevel::notice, "it has ended");
        const UniqueFd next = desk.start(0, "another");
        say(left_behind, "still me\n");
        say(next, "I am new\n");
        desk.turn_until_quiet();
        return "";
    });
    CHECK(lines == std::vector<std::string>{"notice: me output: one", "notice: me output: two",
                                            "notice: me output: no end", "notice: it has ended",
                                            "notice: me output: still me",
                                            "notice: another output: I am new"});
}

TEST_CASE("the end comes although somebody else never stops writing") {
    logged_by([](const auto&) {
        OutputDesk desk;
        UniqueFd end = desk.start(0, "me");
        const UniqueFd left_behind{::fcntl(end.get(), F_DUPFD_CLOEXEC, 0)};
        std::jthread writer{[&](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                (void)!::write(left_behind.get(), "again and again\n", 16);
            }
        }};
        for (int i = 0; i < 100; ++i) {
            desk.turn();
        }
        desk.output.end(child(0), "me");
        desk.output.flush(ChildOutput::Clock::now());
        writer.request_stop();
        while (desk.turn()) {
        }
        return "";
    });
}

TEST_CASE("an end and a last event in one batch: the place may have gone to another already") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        UniqueFd end = desk.start(0, "old");
        say(end, "last\n");
        for (const Poller::Event& event : desk.poller.poll()) {
            desk.output.on_event(event);
        }
        end.reset();
        desk.output.end(child(0), "old");
        const UniqueFd next = desk.start(0, "new");
        say(next, "not yet\n");
        desk.output.settle(ChildOutput::Clock::now());
        log_always(LogLevel::notice, "mark");
        desk.turn();
        return "";
    });
    CHECK(lines == std::vector<std::string>{"notice: old output: last", "notice: mark",
                                            "notice: new output: not yet"});
}

TEST_CASE("a long line is cut, and says by how much") {
    const auto lines = logged_by([](const auto&) {
        Config config;
        config.child_output_line = 10;
        OutputDesk desk{config};
        const UniqueFd end = desk.start(0, "me");
        say(end, "0123456789\n0123456789ab\n");
        desk.turn();
        return "";
    });
    CHECK(lines == std::vector<std::string>{"notice: me output: 0123456789",
                                            "notice: me output: 0123456789 [2 more bytes were left out]"});
}

TEST_CASE("no descriptor is left when processes and what they started are gone, and few are kept before") {
    logged_by([](const auto&) -> std::string {
        OutputDesk desk;
        const std::size_t before = descriptors_of().size();
        std::vector<UniqueFd> left_behind;
        for (unsigned i = 0; i < 2 * ChildOutput::most_gone; ++i) {
            UniqueFd end = desk.start(0, "child " + std::to_string(i));
            desk.output.end(child(0), "gone");
            left_behind.push_back(std::move(end));
        }
        if (descriptors_of().size() != before + 3 * ChildOutput::most_gone) {
            return "another number is kept";
        }
        // The oldest have lost theirs.
        if (::write(left_behind.front().get(), "x", 1) != -1 ||
            ::write(left_behind.back().get(), "x", 1) != 1) {
            return "others are kept";
        }
        left_behind.clear();
        desk.turn_until_quiet();
        return descriptors_of().size() == before ? "" : "some are left";
    });
}

TEST_CASE("a pipe can be handed to another process, and goes on there") {
    const auto lines = logged_by([](const auto&) -> std::string {
        OutputDesk old;
        const UniqueFd one = old.start(3, "child=3 gen=1 pid=57");
        const UniqueFd unnamed = old.open(4);
        UniqueFd gone = old.start(5, "child=5 gen=1 pid=59");
        old.output.end(child(5), "child=5 gen=1 pid=59");
        say(one, "half a line");
        old.turn();
        say(gone, "flushed\n");
        old.output.flush(ChildOutput::Clock::now());
        OutputDesk next;
        for (const ChildOutput::Held& held : old.output.held()) {
            next.output.adopt(held.owner, next.config, UniqueFd{::fcntl(held.fd, F_DUPFD_CLOEXEC, 0)},
                              held.author);
        }
        say(one, "one\n");
        say(unnamed, "two\n");
        say(gone, "three\n");
        next.output.begin(child(4), "named");
        next.turn();
        next.output.end(child(3), "it has its name");
        return next.output.held().size() == 3 ? "" : "another number is held";
    });
    CHECK(lines == std::vector<std::string>{"notice: child=3 gen=1 pid=57 output: half a line",
                                            "notice: child=5 gen=1 pid=59 output: flushed",
                                            "notice: child=3 gen=1 pid=57 output: one",
                                            "notice: child=5 gen=1 pid=59 output: three",
                                            "notice: named output: two"});
}

TEST_CASE("the writing end may block, and can be written only; the reading end is ours") {
    OutputDesk desk;
    const UniqueFd end = desk.open(0);
    CHECK((::fcntl(end.get(), F_GETFL) & O_NONBLOCK) == 0);
    CHECK(cede::tests::closes_on_exec(end.get()));
    struct stat status {};
    REQUIRE(::fstat(end.get(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0200);
    const auto id = desk.output.file_of(child(0));
    CHECK(id.inode == status.st_ino);
    CHECK(id.device == status.st_dev);
    CHECK(desk.output.file_of(child(1)).inode == 0);
    const auto held = desk.output.held();
    REQUIRE(held.size() == 1);
    CHECK((::fcntl(held[0].fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK(cede::tests::closes_on_exec(held[0].fd));
}

TEST_CASE("where output is inherited there are no pipes, and nothing to do") {
    Config config;
    config.child_output = ChildOutputMode::inherit;
    OutputDesk desk{config};
    const std::size_t before = descriptors_of().size();
    const auto end = desk.output.open(child(0), config, {});
    REQUIRE(end.has_value());
    CHECK_FALSE(*end);
    desk.output.begin(child(0), "me");
    desk.output.end(child(0), "me");
    CHECK(desk.output.file_of(child(0)).inode == 0);
    CHECK(descriptors_of().size() == before);
}
