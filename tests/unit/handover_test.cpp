// SPDX-License-Identifier: Apache-2.0
#include "pm/handover.h"

#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "children/scoreboard.h"
#include "children/zygote_protocol.h"

using cede::children::UniqueFd;
using cede::pm::descriptors_of;
using cede::pm::Handover;
using cede::pm::read_handover;
using cede::pm::Reading;
using cede::pm::write_handover;

namespace {

Handover of_this_version() {
    Handover handover;
    handover.scoreboard_version = cede::children::scoreboard_version;
    handover.protocol_version = cede::children::protocol_version;
    handover.supervisor = ::getpid();
    return handover;
}

// All descriptors are 0 to 2, which are open.
Handover complete() {
    Handover handover = of_this_version();
    handover.version = "1.2.3";
    handover.executed = "/usr/bin/cede";
    handover.arguments = {"cede", "--listen", "/run/a b.sock", "\"quoted\"\n"};
    handover.executable = 0;
    handover.listeners = {{1, 2, "/run/a b.sock", true, "mode 0660", "/run/a b.sock", 7, 8, 511, 128, false}};
    handover.scoreboard = 2;
    handover.handoff_ours = 0;
    handover.handoff_theirs = 1;
    handover.control = {2, "/run/cede/www.sock", 1, 2};
    handover.settings = {{"listen", "/run/a b.sock"}, {"env", "A=\n"}};
    handover.command = {"/usr/bin/php-cgi8.2", "-d", "x=\"y\""};
    handover.slots = 1024;
    handover.totals = R"({"a":1})";
    handover.generation = 4;
    handover.zygote = {99, 0, 4, 1, 123456789};
    handover.children = {{3, 100, 1, true, true, false, 4, 55, -1, 2, 3},
                         {4, 101, -1, false, false, true, 3, 0, 1, 2, 3}};
    handover.outputs = {{1, 3, 2, "child=3 gen=4 pid=100"}};
    handover.parked = {{0, 1'000'000'000'000'000'000U}, {1, 5}};
    handover.fresh = {{1, 8}};
    handover.partial = {{2, 9}};
    handover.leaving = {{2, 6}};
    handover.lingering = {{0, 10}};
    handover.queued = {{0, 7}};
    return handover;
}

UniqueFd sealed(const std::string& text) {
    UniqueFd file{::memfd_create("test", MFD_ALLOW_SEALING)};
    REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    REQUIRE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
    return file;
}

std::string problem_of(const UniqueFd& file, Reading reading = Reading::take_over) {
    const auto read = read_handover(file.get(), reading);
    return read ? "" : read.error();
}

}  // namespace

TEST_CASE("what is written is read") {
    const Handover left = complete();
    const auto file = write_handover(left);
    REQUIRE(file);
    const auto read = read_handover(file->get(), Reading::take_over);
    REQUIRE(read);
    CHECK(read->arguments == left.arguments);
    CHECK(read->listeners.front().name == "/run/a b.sock");
    CHECK(read->listeners.front().inode == 8);
    CHECK(!read->listeners.front().nonblocking_before);
    REQUIRE(read->settings.size() == 2);
    CHECK(read->settings.back().value == "A=\n");
    CHECK(read->command == left.command);
    CHECK(read->slots == 1024);
    CHECK(read->control.path == "/run/cede/www.sock");
    CHECK(read->totals == left.totals);
    CHECK(read->zygote.started_at == 123456789);
    REQUIRE(read->children.size() == 2);
    CHECK(read->children.front().ordered_at == -1);
    CHECK(read->children.back().outdated);
    CHECK(read->outputs.front().author == "child=3 gen=4 pid=100");
    REQUIRE(read->parked.size() == 2);
    CHECK(read->parked.front().since_ns == 1'000'000'000'000'000'000U);
    CHECK(read->fresh.front().since_ns == 8);
    CHECK(read->partial.front().since_ns == 9);
    CHECK(read->leaving.front().since_ns == 6);
    CHECK(read->lingering.front().since_ns == 10);
    CHECK(read->queued.front().since_ns == 7);
    CHECK(descriptors_of(*read).size() == 5 + 1 + 1 + 1 + 1 + 7);
}

TEST_CASE("a file that could still change is refused") {
    const UniqueFd file{::memfd_create("test", MFD_ALLOW_SEALING)};
    CHECK(problem_of(file).find("is not what a cede leaves behind; unset CEDE_HANDOVER") !=
          std::string::npos);
    const UniqueFd null{::open("/dev/null", O_RDONLY)};
    CHECK(problem_of(null).find("is not what a cede leaves behind") != std::string::npos);
}

TEST_CASE("nonsense in a sealed file is refused") {
    for (const char* const text : {"", "{", "[]", "null", "{}", "{\"format\":1}", "{\"format\":\"1\"}"}) {
        CAPTURE(text);
        CHECK(problem_of(sealed(text)) != "");
    }
}

TEST_CASE("another version of what is shared is refused before anything else is looked at") {
    Handover left = complete();
    left.scoreboard_version += 1;
    CHECK(problem_of(*write_handover(left)).find("scoreboard is") != std::string::npos);
    left = complete();
    left.protocol_version = 0;
    CHECK(problem_of(*write_handover(left)).find("restart cede instead") != std::string::npos);
    CHECK(problem_of(sealed(R"({"format":999,"children":"something else by now"})")).find("format is 999") !=
          std::string::npos);
}

TEST_CASE("it is for the process that it was left to, and for others to look at") {
    Handover left = complete();
    left.supervisor = 1;
    const auto file = write_handover(left);
    CHECK(problem_of(*file).find("is for process 1") != std::string::npos);
    CHECK(problem_of(*file, Reading::look) == "");
}

TEST_CASE("a descriptor that is not open is noticed") {
    Handover left = complete();
    left.parked.push_back({987654, 1});
    CHECK(problem_of(*write_handover(left)) == "descriptor 987654 was promised and is not open");
    CHECK(problem_of(*write_handover(left), Reading::look) == "");
}

TEST_CASE("without listening sockets nothing can go on") {
    Handover left = complete();
    left.listeners.clear();
    CHECK(problem_of(*write_handover(left)).find("lacks the listening sockets") != std::string::npos);
}
