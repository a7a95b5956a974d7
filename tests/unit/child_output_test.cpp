// SPDX-License-Identifier: Apache-2.0
#include "pm/child_output.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "pm/log.h"
#include "tests/support/descriptors.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace std::chrono_literals;
using cede::children::UniqueFd;
using cede::tests::descriptors_of;
using cede::tests::in_child;
using cede::tests::TempDirectory;
using Owner = ChildOutput::Owner;

namespace {

constexpr Owner child(std::uint32_t slot) {
    return {Owner::Kind::child, slot};
}

// The supervisor's loop, as far as output is concerned.
struct OutputDesk {
    Config config;
    Poller poller;
    ChildOutput output{poller};

    explicit OutputDesk(Config chosen = {}) : config{std::move(chosen)} {}

    // Whether there was anything to read, or is left for the next turn.
    bool turn(ChildOutput::Clock::time_point now = ChildOutput::Clock::now()) {
        const auto events = poller.poll();
        for (const Poller::Event& event : events) {
            output.on_event(event);
        }
        output.settle(now);
        return !events.empty() || output.due() == ChildOutput::Clock::time_point{};
    }
    void turn_until_quiet() {
        while (turn()) {
        }
    }
    UniqueFd start(std::uint32_t slot, const std::string& author) {
        UniqueFd end = open(slot);
        output.begin(child(slot), author);
        return end;
    }
    UniqueFd open(std::uint32_t slot) { return std::move(*output.open(child(slot), config, {})); }
};

void say(const UniqueFd& end, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(end.get(), text.data(), text.size());
        if (written <= 0) {
            throw std::runtime_error{"write"};
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

std::string content_of(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

// The lines, without their times, of a process that has this file as its log. `action` may return what went
// wrong.
template <typename Action>
std::vector<std::string> logged_by(Action action) {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    const std::string outcome = in_child([&]() -> std::string {
        std::signal(SIGPIPE, SIG_IGN);
        Config config;
        config.log = path;
        if (!open_log(config)) {
            return "not opened";
        }
        set_log_level(LogLevel::error);
        return action(path);
    });
    CHECK(outcome == "");
    std::istringstream text{content_of(path)};
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line.substr(line.find("cede: ") + 6));
    }
    return lines;
}

}  // namespace

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

TEST_CASE("beyond what one process may log its lines are dropped, all counted, and others go on") {
    constexpr unsigned total = 10'000;
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        const auto start = ChildOutput::Clock::now();
        for (unsigned i = 0; i < total; ++i) {
            say(loud, std::string(1999, 'x') + "\n");
            if (i % 10 == 0) {
                desk.turn(start);
            }
        }
        say(quiet, "me, too\n");
        while (desk.turn(start)) {
        }
        if (desk.output.due() != start + ChildOutput::patience) {
            return "due at another time";
        }
        desk.output.tend(start + 1s);
        say(loud, "again\n");
        desk.turn(start + 1s);
        return "";
    });
    REQUIRE(lines.size() > 4);
    CHECK(lines.back() == "notice: loud output: again");
    CHECK(lines[lines.size() - 3] == "notice: quiet output: me, too");
    const std::string& count = lines[lines.size() - 2];
    std::smatch found;
    REQUIRE(std::regex_match(
        count, found,
        std::regex{
            R"(warning: loud wrote more than 1000 lines or 1024 KiB a second: (\d+) lines of its output, (\d+) bytes, were dropped)"}));
    const unsigned long dropped = std::stoul(found[1]);
    CHECK(dropped + lines.size() - 3 == total);
    CHECK(std::stoul(found[2]) == dropped * 1999);
    CHECK(lines.size() * 2000 < ChildOutput::most_at_once);
}

TEST_CASE("empty lines are limited by their number: what is beyond is dropped and counted") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const auto start = ChildOutput::Clock::now();
        say(loud, std::string(50'000, '\n'));
        while (desk.turn(start)) {
        }
        desk.output.tend(start + 1s);
        say(loud, std::string(2000, '\n'));
        while (desk.turn(start + 1s)) {
        }
        desk.output.tend(start + 2s);
        return "";
    });
    REQUIRE(lines.size() == ChildOutput::most_lines_at_once + 1 + ChildOutput::most_lines_per_second + 1);
    CHECK(
        lines[ChildOutput::most_lines_at_once] ==
        "warning: loud wrote more than 1000 lines or 1024 KiB a second: 46000 lines of its output, 0 bytes, "
        "were dropped");
    CHECK(lines.back() ==
          "warning: loud wrote more than 1000 lines or 1024 KiB a second: 1000 lines of its output, 0 bytes, "
          "were dropped");
}

TEST_CASE("a turn writes few lines, however many were read, and the next ones the others, in order") {
    constexpr unsigned total = 3000;
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        std::string text;
        for (unsigned i = 0; i < total; ++i) {
            text += std::to_string(i) + "\n";
        }
        say(loud, text + "half");
        desk.turn();
        log_always(LogLevel::notice, "mark");
        say(quiet, "hello\n");
        desk.output.tend(ChildOutput::Clock::now());  // nothing has to happen for it
        desk.turn();
        log_always(LogLevel::notice, "mark");
        desk.turn_until_quiet();
        desk.output.end(child(0), "loud");
        return "";
    });
    REQUIRE(lines.size() == total + 4);
    CHECK(lines[ChildOutput::lines_of_a_turn] == "notice: mark");
    CHECK(lines[2 * ChildOutput::lines_of_a_turn + 1] == "notice: quiet output: hello");
    unsigned next = 0;
    for (const std::string& line : lines) {
        if (line.starts_with("notice: loud output: ") && next < total) {
            CHECK(line == "notice: loud output: " + std::to_string(next++));
        }
    }
    CHECK(next == total);
    CHECK(lines.back() == "notice: loud output: half");
}

TEST_CASE("lines that are left for the next turn are written at the end of their process, and at flush") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd one = desk.start(0, "one");
        const UniqueFd other = desk.start(1, "other");
        say(one, std::string(1000, '\n') + "last\n");
        say(other, std::string(1000, '\n') + "last\n");
        desk.turn();
        desk.output.end(child(0), "one");
        log_always(LogLevel::notice, "it has ended");
        desk.output.flush(ChildOutput::Clock::now());
        desk.turn();
        return desk.output.due() == ChildOutput::Clock::time_point::max() ? "" : "something is due";
    });
    REQUIRE(lines.size() == 2003);
    CHECK(lines[1251] == "notice: it has ended");
    CHECK(lines[1250] == "notice: one output: last");
    CHECK(lines.back() == "notice: other output: last");
}

TEST_CASE("in one turn everybody has his share, whoever has more to say") {
    const auto lines = logged_by([](const auto&) {
        OutputDesk desk;
        const UniqueFd loud = desk.start(0, "loud");
        const UniqueFd quiet = desk.start(1, "quiet");
        if (::fcntl(loud.get(), F_GETPIPE_SZ) < 128 * 1024) {
            return "";  // no room for more than a share
        }
        for (int i = 0; i < 100; ++i) {
            say(loud, std::string(1023, 'x') + "\n");
        }
        say(quiet, "hello\n");
        desk.turn();
        log_always(LogLevel::notice, "mark");
        desk.turn_until_quiet();
        return "";
    });
    std::size_t mark = 0;
    while (mark < lines.size() && lines[mark] != "notice: mark") {
        ++mark;
    }
    if (lines.size() > 1) {
        CHECK(lines.size() == 102);
        CHECK(mark == ChildOutput::most_in_a_turn / 1024 + 1);
        CHECK(lines[mark - 1] == "notice: quiet output: hello");
    }
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
