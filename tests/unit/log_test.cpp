// SPDX-License-Identifier: Apache-2.0
#include "pm/log.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "pm/log_folding.h"
#include "pm/option_table.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using cede::tests::in_child;
using cede::tests::TempDirectory;

namespace {

std::string content(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

Config to_file(const std::string& path) {
    Config config;
    config.log = path;
    return config;
}

// What a process writes that has this file as its log; the log of the tests themselves stays as it is.
template <typename Action>
std::string logged(Action action) {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    const std::string outcome = in_child([&] {
        if (!open_log(to_file(path))) {
            return "not opened";
        }
        action(path);
        return "done";
    });
    CHECK(outcome == "done");
    return content(path);
}

std::string refusal(const char* option, const std::string& value) {
    Config config;
    const auto assigned = find_option(option)->assign(config, value);
    return assigned ? "" : assigned.error();
}

}  // namespace

TEST_CASE("the log goes to stderr, to syslog or to a full path, as text or JSON") {
    Config config;
    CHECK(config.log == "stderr");
    CHECK(config.log_format == LogFormat::text);
    for (const std::string target : {"syslog", "stderr", "/var/log/cede.log"}) {
        CHECK(find_option("log")->assign(config, target).has_value());
        CHECK(config.log == target);
    }
    CHECK(find_option("log-format")->assign(config, "json").has_value());
    CHECK(config.log_format == LogFormat::json);
    CHECK(refusal("log", "cede.log").find("full path") != std::string::npos);
    CHECK(refusal("log", "STDERR").find("'STDERR'") != std::string::npos);
    CHECK(refusal("log-format", "xml").find("text, json") != std::string::npos);
}

TEST_CASE("children's output is logged or inherited, and how long its lines may be is bounded") {
    Config config;
    CHECK(config.child_output == ChildOutputMode::log);
    CHECK(find_option("child-output")->assign(config, "inherit").has_value());
    CHECK(config.child_output == ChildOutputMode::inherit);
    CHECK(refusal("child-output", "raw").find("log, inherit") != std::string::npos);
    CHECK(find_option("child-output-line")->assign(config, "64K").has_value());
    CHECK(config.child_output_line == 65536);
    for (const char* value : {"255", "1025K"}) {
        CHECK(refusal("child-output-line", value).find("give 256 to 1048576 bytes") != std::string::npos);
    }
    CHECK(refusal("child-output-line", "x") != "");
}

TEST_CASE("output is written at any level, under the name of its author, and is never folded") {
    const std::string text = logged([](const std::string&) {
        set_log_level(LogLevel::error);
        for (int i = 0; i < 20; ++i) {
            log_output("child=3 gen=1 pid=57", "the same\n");
            log_always(LogLevel::warning, "child=3 gen=1 pid=57 said it");
        }
        settle_log();
    });
    CHECK(count(text, "Z cede: notice: child=3 gen=1 pid=57 output: the same\\n\n") == 20);
    CHECK(count(text, "Z cede: warning: child=3 gen=1 pid=57 said it\n") == 20);
    CHECK(count(text, "\n") == 40);
}

TEST_CASE("lines from the level up are written, with their level") {
    const std::string text = logged([](const std::string&) {
        set_log_level(LogLevel::warning);
        log(LogLevel::error, "first {}", 1);
        log(LogLevel::warning, "second");
        log(LogLevel::notice, "third");
    });
    CHECK(count(text, "\n") == 2);
    CHECK(text.find("cede: error: first 1\n") != std::string::npos);
    CHECK(text.find("cede: warning: second\n") != std::string::npos);
}

TEST_CASE("warnings and errors are folded, what was asked for is not") {
    const std::string text = logged([](const std::string&) {
        set_log_level(LogLevel::info);
        for (int i = 0; i < 20; ++i) {
            log(LogLevel::warning, "child={} was killed", i);
            log(LogLevel::notice, "reloaded {}", i);
            log(LogLevel::info, "child={} ready", i);
        }
        settle_log();
    });
    CHECK(count(text, "was killed\n") == LogFolding::most_written);
    CHECK(text.ends_with("child=19 was killed ... repeated 15 times\n"));
    CHECK(count(text, "reloaded") == 20);
    CHECK(count(text, "ready\n") == 20);
}

TEST_CASE("reopening goes on in a new file and says so there") {
    const TempDirectory folder;
    const std::string old = folder.path("old");
    const std::string text = logged([&old](const std::string& path) {
        log(LogLevel::notice, "before");
        std::rename(path.c_str(), old.c_str());
        if (reopen_log()) {
            log(LogLevel::notice, "after");
        }
    });
    CHECK(count(text, "\n") == 2);
    CHECK(text.find("was reopened") < text.find("after"));
    CHECK(content(old).ends_with("cede: notice: before\n"));
}

TEST_CASE("a log that can't be opened leaves the one before, and the message names the option") {
    const std::string text = logged([](const std::string&) {
        const auto opened = open_log(to_file("/no/such/folder/cede.log"));
        log(LogLevel::notice, "{}", opened ? "opened" : opened.error().message);
        const auto checked = check_log(to_file("/no/such/folder/cede.log"));
        log(LogLevel::notice, "{}", checked ? "good" : "refused, too");
    });
    CHECK(text.find("notice: --log: the log '/no/such/folder/cede.log' can't be opened: No such file") !=
          std::string::npos);
    CHECK(text.find("refused, too") != std::string::npos);
}

TEST_CASE("an error that ends the program is on stderr and in the log, once in each") {
    const TempDirectory folder;
    const std::string terminal = folder.write("stderr", "");
    const std::string text = logged([&terminal](const std::string&) {
        const int fd = ::open(terminal.c_str(), O_WRONLY | O_APPEND);
        ::dup2(fd, STDERR_FILENO);
        log_last_words("it is over");
    });
    CHECK(content(terminal) == "cede: error: it is over\n");
    CHECK(text.ends_with("Z cede: error: it is over\n"));
    CHECK(count(text, "\n") == 1);
}
