// SPDX-License-Identifier: Apache-2.0
#include "pm/command.h"

#include <initializer_list>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;
using Verb = Command::Verb;

namespace {

std::expected<Command, Error> parse(std::initializer_list<const char*> arguments) {
    return parse_command(std::vector<const char*>{arguments});
}

}  // namespace

TEST_CASE("each command has its word") {
    CHECK(parse({"status"})->verb == Verb::status);
    CHECK(parse({"reload"})->verb == Verb::reload);
    CHECK(parse({"stop"})->verb == Verb::stop);
    CHECK(parse({"upgrade"})->verb == Verb::upgrade);
    CHECK(parse({"reopen"})->verb == Verb::reopen);
    CHECK(parse({"children", "12"})->verb == Verb::children);
    for (const std::string_view word : command_words()) {
        CHECK(is_command(word));
    }
    CHECK_FALSE(is_command("run"));
    CHECK_FALSE(is_command("--json"));
    CHECK_FALSE(is_command(""));
}

TEST_CASE("options say which pool, and how") {
    CHECK(parse({"status", "--json"})->json);
    CHECK(parse({"stop", "--fast"})->fast);
    CHECK_FALSE(parse({"stop"})->fast);
    CHECK(parse({"children", "12", "--title", "www"})->children == 12);
    CHECK(parse({"children", "--title", "www", "12"})->title == "www");
    CHECK(parse({"reload", "--control=/run/x.sock"})->control == "/run/x.sock");
    CHECK(parse({"reload", "--listen", "127.0.0.1:9000"})->listen == "127.0.0.1:9000");
    CHECK(parse({"reload", "--timeout", "30s"})->timeout == 30s);
    CHECK_FALSE(parse({"reload"})->timeout);
    CHECK(parse({"children", "--help"})->help);
}

TEST_CASE("wrong command lines are wrong usage, and say what is wrong") {
    struct Case {
        std::initializer_list<const char*> arguments;
        const char* says;
    };
    const Case cases[] = {
        {{"status", "--fast"}, "fast"},
        {{"status", "now"}, "'now'"},
        {{"reload", "--json"}, "json"},
        {{"reload", "--control"}, "control"},
        {{"reload", "--control", ""}, "empty"},
        {{"reload", "--listen", "9000"}, "9000"},
        {{"reload", "--timeout", "0"}, "--timeout"},
        {{"reload", "--timeout", "soon"}, "'soon'"},
        {{"reload", "--title", "a", "--title", "b"}, "twice"},
        {{"reload", "--title", "a", "--control", "/b"}, "keep one"},
        {{"stop", "-f"}, "-f"},
        {{"children"}, "how many"},
        {{"children", "0"}, "1 to 10000"},
        {{"children", "-1"}, "-1"},
        {{"children", "ten"}, "'ten'"},
        {{"children", "1", "2"}, "'2'"},
    };
    for (const Case& one : cases) {
        CAPTURE(one.says);
        const auto command = parse(one.arguments);
        REQUIRE_FALSE(command.has_value());
        CHECK(command.error().exit_status == 2);
        CHECK(command.error().message.find(one.says) != std::string::npos);
        CHECK(command.error().message.find("cede --help") != std::string::npos);
    }
}
