// SPDX-License-Identifier: Apache-2.0
#include "pm/process_title.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"

using namespace cede::pm;
using cede::tests::in_child;

namespace {

// Strings one behind the other, as execve(2) lays them out, with something behind that must never change.
class Layout {
  public:
    Layout(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
        for (const auto* strings : {&arguments, &environment}) {
            for (const std::string& string : *strings) {
                offsets_.push_back(memory_.size());
                memory_.append(string.c_str(), string.size() + 1);
            }
        }
        used_ = memory_.size();
        memory_ += guard;
        for (std::size_t i = 0; i < offsets_.size(); ++i) {
            (i < arguments.size() ? arguments_ : environment_).push_back(memory_.data() + offsets_[i]);
        }
    }

    std::vector<char*>& arguments() { return arguments_; }
    std::vector<char*>& environment() { return environment_; }
    TitleRoom room() const { return title_room(arguments_, environment_); }
    std::size_t used() const { return used_; }
    std::string shown() const { return memory_.c_str(); }
    std::string bytes() const { return memory_.substr(0, used_); }
    bool guarded() const { return memory_.substr(used_) == guard; }

  private:
    static constexpr const char* guard = "guard";
    std::vector<std::size_t> offsets_;
    std::string memory_;
    std::size_t used_ = 0;
    std::vector<char*> arguments_;
    std::vector<char*> environment_;
};

std::string content_of(const char* path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

TEST_CASE("the room is what follows each other without a gap") {
    Layout whole{{"cede", "run"}, {"A=1", "B=22"}};
    CHECK(whole.room().arguments == 9);
    CHECK(whole.room().all == 18);

    Layout replaced{{"cede", "run"}, {"A=1", "B=22"}};
    char elsewhere[] = "A=2";
    replaced.environment()[0] = elsewhere;
    CHECK(replaced.room().arguments == 9);
    CHECK(replaced.room().all == 9);

    Layout shuffled{{"cede", "run", "x"}, {"A=1"}};
    std::swap(shuffled.arguments()[1], shuffled.arguments()[2]);
    CHECK(shuffled.room().arguments == 5);
    CHECK(shuffled.room().all == 5);

    CHECK(title_room({}, {}).all == 0);
    write_title(title_room({}, {}), "nothing to write it to");
}

TEST_CASE("a short title leaves nothing of the arguments and all of the environment") {
    Layout layout{{"/usr/bin/cede", "--children", "3"}, {"SECRET=x"}};
    write_title(layout.room(), "cede: s");
    CHECK(layout.bytes() == std::string{"cede: s"} + std::string(20, '\0') + std::string{"SECRET=x"} + '\0');
    CHECK(layout.guarded());
}

TEST_CASE("a title of any length stays within its room and ends with NUL") {
    for (std::size_t length = 0; length < 40; ++length) {
        CAPTURE(length);
        Layout layout{{"cede", "run"}, {"A=1", "B=22"}};
        const std::string title(length, 't');
        const TitleRoom room = layout.room();
        write_title(room, title);
        CHECK(layout.shown() == title.substr(0, layout.used() - 1));
        CHECK(layout.guarded());
        write_title(room, "short");
        CHECK(layout.shown() == "short");
    }
}

TEST_CASE("a title is not cut within a character") {
    CHECK(cut("abc", 3) == "abc");
    CHECK(cut("abcd", 3) == "abc");
    CHECK(cut("ab\xc3\xa9", 3) == "ab");
    CHECK(cut("ab\xc3\xa9", 4) == "ab\xc3\xa9");
    CHECK(cut("\xf0\x9f\x90\x98x", 3).empty());
    CHECK(cut("\xf0\x9f\x90\x98x", 4) == "\xf0\x9f\x90\x98");
    CHECK(cut("\x80\x80\x80", 2).empty());
    Layout layout{{"cede"}, {}};
    write_title(layout.room(), "abc\xc3\xa9");
    CHECK(layout.shown() == "abc");
}

TEST_CASE("the short name of the process is cut to what the kernel keeps, and variables survive") {
    const auto shown = [](std::string label) {
        return in_child([label] {
            setenv("CEDE_TITLE_TEST", "before", 1);
            show_title("supervisor", label);
            setenv("CEDE_TITLE_TEST_2", "after", 1);
            return content_of("/proc/self/comm") + std::getenv("CEDE_TITLE_TEST") + ' ' +
                   std::getenv("CEDE_TITLE_TEST_2") + ' ' + program_invocation_short_name;
        });
    };
    CHECK(shown("") == "cede\nbefore after unit-tests");
    CHECK(shown("www") == "cede [www]\nbefore after unit-tests");
    CHECK(shown("a-long-title") == "cede [a-long-ti\nbefore after unit-tests");
    CHECK(shown("12345678\xc3\xa9") == "cede [12345678\nbefore after unit-tests");
}
