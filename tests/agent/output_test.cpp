// SPDX-License-Identifier: Apache-2.0
// A child's own output: what its order brings becomes its descriptors 1 and 2.
#include <csignal>
#include <cstdint>
#include <set>
#include <string>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "tests/agent/client.h"
#include "tests/agent/stand_in.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::children::FileId;
using cede::children::ForkOrder;

namespace {

FileId id_of(int fd) {
    struct stat status {};
    REQUIRE(::fstat(fd, &status) == 0);
    return {status.st_dev, status.st_ino};
}

std::string target_of(pid_t process, int fd) {
    return descriptors_of(std::to_string(process))[fd];
}

// What arrives within a moment; empty: nothing did.
std::string read_soon(int fd) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    char buffer[256];
    ssize_t size = 0;
    (void)soon([&] { return (size = ::read(fd, buffer, sizeof buffer)) > 0; });
    return {buffer, size > 0 ? static_cast<std::size_t>(size) : 0};
}

// A zygote with a pipe of its own, and another pipe for a child.
struct OutputStage {
    Ends zygote_pipe = pipe_pair();
    Ends pipe = pipe_pair();
    StandIn stand_in;

    explicit OutputStage(StandIn::Options options = {}) : stand_in{with_output(std::move(options))} {
        stand_in.wait_until_ready();
    }
    StandIn::Options with_output(StandIn::Options options) const {
        options.output = zygote_pipe.theirs.get();
        return options;
    }
    pid_t start_child(std::uint32_t slot, int output) {
        return stand_in.start_child(slot, {output, id_of(zygote_pipe.theirs.get())});
    }
};

}  // namespace

TEST_CASE("a child's descriptors 1 and 2 are what its order brings, and nothing else of it is left open") {
    OutputStage stage;
    const pid_t plain = stage.start_child(0, -1);
    const pid_t child = stage.start_child(1, stage.pipe.theirs.get());
    CHECK(target_of(child, 1) != target_of(plain, 1));
    CHECK(target_of(child, 1) == target_of(child, 2));
    CHECK(target_of(stage.stand_in.pid(), 2) == target_of(plain, 2));
    // The same numbers as in a child without.
    std::set<int> numbers;
    for (const auto& [number, target] : descriptors_of(std::to_string(child))) {
        numbers.insert(number);
    }
    for (const auto& [number, target] : descriptors_of(std::to_string(plain))) {
        CHECK(numbers.erase(number) == 1);
    }
    CHECK(numbers.empty());
    // And nobody but this child has the writing end.
    stage.pipe.theirs.reset();
    ::kill(child, SIGKILL);
    CHECK(stage.stand_in.exit_of(child) == SIGKILL);
    char byte = 0;
    CHECK(::read(stage.pipe.ours.get(), &byte, 1) == 0);
}

TEST_CASE("what a child and its programs say arrives in its own pipe") {
    OutputStage stage;
    stage.start_child(0, stage.pipe.theirs.get());
    const UniqueFd client = stage.stand_in.connect();
    CHECK(ask(client.get(), command("popen", "echo from a program >&2")) == "status 0\n");
    CHECK(read_soon(stage.pipe.ours.get()) == "from a program\n");
    ::fcntl(stage.zygote_pipe.ours.get(), F_SETFL, O_NONBLOCK);
    char byte = 0;
    CHECK(::read(stage.zygote_pipe.ours.get(), &byte, 1) < 0);
}

TEST_CASE("an order without an output leaves the zygote's") {
    OutputStage stage;
    stage.start_child(0, -1);
    const UniqueFd client = stage.stand_in.connect();
    CHECK(ask(client.get(), command("popen", "echo shared >&2")) == "status 0\n");
    CHECK(read_soon(stage.zygote_pipe.ours.get()) == "shared\n");
}

TEST_CASE("what was redirected on the way to the program stays so") {
    const TempDirectory folder;
    const std::string file = folder.write("file", "");
    StandIn::Options options;
    options.command = {"/bin/sh", "-c", "exec " + host_path() + " 2>" + file};
    OutputStage stage{options};
    const pid_t child = stage.start_child(0, stage.pipe.theirs.get());
    CHECK(target_of(child, 2) == file);
    CHECK(target_of(child, 1) != target_of(stage.stand_in.pid(), 1));
}

TEST_CASE("an order that names no output to replace replaces nothing") {
    OutputStage stage;
    const pid_t child = stage.stand_in.start_child(0, {stage.pipe.theirs.get(), {}});
    CHECK(target_of(child, 1) == target_of(stage.stand_in.pid(), 1));
    CHECK(target_of(child, 2) == target_of(stage.stand_in.pid(), 2));
}

TEST_CASE("both descriptors of an order that is none of ours are closed") {
    OutputStage stage;
    Ends channel = socket_pair();
    ForkOrder other;
    other.version += 1;
    REQUIRE(cede::children::send_message(stage.stand_in.zygote_channel(), &other, sizeof other,
                                         channel.theirs.get(), stage.pipe.theirs.get()));
    channel.theirs.reset();
    stage.pipe.theirs.reset();
    CHECK(at_end(channel.ours.get()));
    char byte = 0;
    CHECK(::read(stage.pipe.ours.get(), &byte, 1) == 0);
    stage.start_child(0, -1);
}
