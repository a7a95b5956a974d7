// SPDX-License-Identifier: Apache-2.0
#include "pm/log_writer.h"

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

const LogWriter::Clock::time_point start{1000h};

// As much room as a test gives it, and a file that moves when a test says so.
class Paper final : public LogOutlet {
  public:
    std::string written;
    std::size_t room = 1'000'000;
    int problem = EAGAIN;
    bool gone = false;
    int reopening = 0;  // the errno that it fails with
    mutable unsigned looks = 0;
    unsigned reopened = 0;

    [[nodiscard]] LogStamp stamp() const noexcept override { return LogStamp::journal; }
    [[nodiscard]] std::string path() const override { return "/x.log"; }

    [[nodiscard]] std::expected<std::size_t, int> write(std::string_view bytes) noexcept override {
        const std::size_t taken = std::min(room, bytes.size());
        if (taken == 0) {
            return std::unexpected(problem);
        }
        written += bytes.substr(0, taken);
        room -= taken;
        return taken;
    }

    [[nodiscard]] bool moved() const noexcept override {
        ++looks;
        return gone;
    }

    [[nodiscard]] std::expected<void, int> reopen() noexcept override {
        if (reopening != 0) {
            return std::unexpected(reopening);
        }
        ++reopened;
        gone = false;
        written += "--new file--\n";
        return {};
    }
};

struct Desk {
    Paper* paper = new Paper;
    LogWriter writer;

    // Keeps so much for a slow reader.
    explicit Desk(std::size_t room = 0) : writer{std::unique_ptr<LogOutlet>{paper}, LogFormat::text, room} {}

    void write(std::string_view text, LogWriter::Clock::duration after = 0s) {
        writer.write(LogLevel::notice, text, start + after);
    }
};

}  // namespace

TEST_CASE("lines come out whole and in order") {
    Desk desk;
    desk.write("one");
    desk.write("two");
    CHECK(desk.paper->written == "<5>notice: one\n<5>notice: two\n");
}

TEST_CASE("lines without room are lost, and the next one that has room is preceded by their number") {
    Desk desk;
    desk.write("one");
    desk.paper->room = 0;
    for (int i = 0; i < 7; ++i) {
        desk.write("unseen");
    }
    desk.paper->room = 1000;
    desk.write("two");
    desk.write("three");
    CHECK(desk.paper->written ==
          "<5>notice: one\n<4>warning: 7 lines of the log were lost: who reads it was too slow\n"
          "<5>notice: two\n<5>notice: three\n");
}

TEST_CASE("the count comes by itself when there is room again") {
    Desk desk;
    desk.paper->room = 0;
    desk.paper->problem = ENOSPC;
    desk.write("unseen");
    desk.writer.tend();
    CHECK(desk.paper->written.empty());
    desk.paper->room = 1000;
    desk.writer.tend();
    desk.writer.tend();
    CHECK(desk.paper->written == "<4>warning: 1 line of the log was lost: No space left on device\n");
}

TEST_CASE("if there is room for the count only, the line is counted in turn") {
    Desk desk;
    const std::string_view count = "<4>warning: 1 line of the log was lost: who reads it was too slow\n";
    desk.paper->room = 0;
    desk.write("unseen");
    desk.paper->room = count.size();
    desk.write("unseen, too");
    CHECK(desk.paper->written == count);
    desk.paper->room = 1000;
    desk.write("seen");
    CHECK(desk.paper->written == std::string{count} + std::string{count} + "<5>notice: seen\n");
}

TEST_CASE("a line that was taken in part is completed before anything else, wherever it was cut") {
    const std::string whole = "<5>notice: the line\n";
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
        CAPTURE(cut);
        Desk desk;
        desk.paper->room = cut;
        desk.write("the line");
        desk.write("unseen");
        CHECK(desk.paper->written == whole.substr(0, cut));
        desk.paper->room = 1000;
        desk.write("next");
        CHECK(desk.paper->written ==
              whole + "<4>warning: 1 line of the log was lost: who reads it was too slow\n<5>notice: next\n");
    }
}

TEST_CASE(
    "what a slow reader has no room for is kept for him, in order, as far as there is room for it here") {
    Desk desk{3 * std::string_view{"<5>notice: line 0\n"}.size()};
    desk.paper->room = 0;
    for (int i = 0; i < 5; ++i) {
        desk.write("line " + std::to_string(i));
    }
    CHECK(desk.writer.waits());
    desk.paper->room = 25;  // ends within a line
    desk.writer.tend();
    CHECK(desk.paper->written == "<5>notice: line 0\n<5>noti");
    desk.paper->room = 1000;
    desk.write("next");
    CHECK(desk.paper->written ==
          "<5>notice: line 0\n<5>notice: line 1\n<5>notice: line 2\n"
          "<4>warning: 2 lines of the log were lost: who reads it was too slow\n<5>notice: next\n");
    CHECK_FALSE(desk.writer.waits());
}

TEST_CASE("nothing is kept for a disk that is full or a reader who has gone") {
    for (const int problem : {ENOSPC, EPIPE}) {
        Desk desk{1000};
        desk.paper->room = 0;
        desk.write("kept");
        desk.write("kept, too");
        CHECK(desk.writer.waits());
        desk.paper->problem = problem;
        desk.write("not kept");
        CHECK_FALSE(desk.writer.waits());
        desk.paper->room = 1000;
        desk.writer.tend();
        CHECK(desk.paper->written.starts_with("<4>warning: 3 lines of the log were lost: "));
    }
}

TEST_CASE("whatever room there is, every line comes whole or not at all, and none is missing in the counts") {
    for (const std::size_t room : {0U, 30U, 200U}) {
        Desk desk{room};
        unsigned asked = 0;
        for (unsigned turn = 0; turn < 3000; ++turn) {
            desk.paper->room = turn * 7919 % 61;
            desk.write("a line");
            ++asked;
        }
        desk.paper->room = 1'000'000;
        desk.writer.tend();
        std::istringstream written{desk.paper->written};
        unsigned accounted = 0;
        for (std::string line; std::getline(written, line);) {
            constexpr std::string_view mark = "<4>warning: ";
            if (line.starts_with(mark)) {
                CHECK(line.ends_with(" lost: who reads it was too slow"));
                accounted += static_cast<unsigned>(std::stoul(line.substr(mark.size())));
            } else {
                CHECK(line == "<5>notice: a line");
                ++accounted;
            }
        }
        CHECK(desk.paper->written.ends_with('\n'));
        CHECK(accounted == asked);
    }
}

TEST_CASE("a file that was moved away is noticed at the next line, with one look in a second") {
    Desk desk;
    desk.write("one");
    desk.paper->gone = true;
    desk.write("two", 999ms);
    CHECK(desk.paper->looks == 1);
    desk.write("three", 1s);
    desk.write("four", 1999ms);
    CHECK(desk.paper->looks == 2);
    CHECK(desk.paper->written ==
          "<5>notice: one\n<5>notice: two\n--new file--\n<5>notice: three\n<5>notice: four\n");
}

TEST_CASE("if the file can't be opened anew the old one is kept, which is said once, and it is tried again") {
    Desk desk;
    desk.paper->gone = true;
    desk.paper->reopening = EACCES;
    for (int second = 0; second < 10; ++second) {
        desk.write("line", second * 1s);
    }
    CHECK(desk.paper->written.starts_with("<3>error: the log /x.log can't be reopened: Permission denied; "));
    CHECK(desk.paper->written.find("reopened", 50) == std::string::npos);
    desk.paper->reopening = 0;
    desk.paper->written.clear();
    desk.write("line", 10s);
    CHECK(desk.paper->written == "--new file--\n<5>notice: line\n");
}

TEST_CASE("to reopen on demand fails aloud each time, and names the path and the reason") {
    Desk desk;
    CHECK(desk.writer.reopen().has_value());
    CHECK(desk.paper->reopened == 1);
    desk.paper->reopening = ENOENT;
    for (int i = 0; i < 2; ++i) {
        desk.paper->written.clear();
        const auto outcome = desk.writer.reopen();
        REQUIRE_FALSE(outcome.has_value());
        CHECK(outcome.error().message.starts_with(
            "the log /x.log can't be reopened: No such file or directory"));
        CHECK(desk.paper->written == "<3>error: " + outcome.error().message + "\n");
    }
}

TEST_CASE("half a line that the old file has is not completed in the new one") {
    Desk desk;
    desk.paper->room = 5;
    desk.write("a line that is cut");
    desk.paper->room = 1000;
    CHECK(desk.writer.reopen().has_value());
    desk.write("next");
    CHECK(desk.paper->written ==
          "<5>no--new file--\n<4>warning: 1 line of the log was lost: who reads it was too slow\n"
          "<5>notice: next\n");
}
