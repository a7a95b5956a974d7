// SPDX-License-Identifier: Apache-2.0
#include "pm/control_socket.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"
#include "tests/unit/control_stage.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

Environment in(const TempDirectory& directory) {
    return {{"RUNTIME_DIRECTORY", directory.path()}};
}

Config with_control(const std::string& control) {
    Config config;
    config.control = control;
    config.origins["control"] = "--control";
    return config;
}

}  // namespace

TEST_CASE("the socket is at the default place, for its owner only, and gone at the end") {
    const TempDirectory directory;
    const auto socket = open_control_socket({}, "127.0.0.1:9000", in(directory));
    REQUIRE(socket.has_value());
    CHECK(socket->path == directory.path("127.0.0.1_9000.sock"));
    CHECK(closes_on_exec(socket->fd.get()));
    struct stat status {};
    REQUIRE(::stat(socket->path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777U) == 0600);
    CHECK(connected_to_path(socket->path));
    socket->remove_file();
    CHECK_FALSE(std::filesystem::exists(socket->path));
}

TEST_CASE("two pools of one name have a socket each") {
    const TempDirectory directory;
    Config config;
    config.title = "www";
    const auto first = open_control_socket(config, "", in(directory));
    const auto second = open_control_socket(config, "", in(directory));
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    CHECK(first->path == directory.path("www.sock"));
    CHECK(second->path == directory.path(fmt::format("www.{}.sock", ::getpid())));
    CHECK(connected_to_path(first->path));
    first->remove_file();
    CHECK(std::filesystem::exists(second->path));
}

TEST_CASE("a dead socket file is replaced, at the default place and at one's own") {
    const TempDirectory directory;
    for (const Config& config : {Config{}, with_control(directory.path("pid-0.sock"))}) {
        std::string path;
        {
            const auto dead = open_control_socket(config, "127.0.0.1:1", in(directory));
            REQUIRE(dead.has_value());
            path = dead->path;
        }
        REQUIRE(std::filesystem::exists(path));
        const auto socket = open_control_socket(config, "127.0.0.1:1", in(directory));
        REQUIRE(socket.has_value());
        CHECK(socket->path == path);
        CHECK(connected_to_path(path));
    }
}

TEST_CASE("dead sockets of the same name are swept away, live ones and others' are not") {
    const TempDirectory directory;
    Config config;
    config.title = "www";
    (void)open_control_socket(with_control(directory.path("www.123.sock")), "", {});
    (void)open_control_socket(with_control(directory.path("other.123.sock")), "", {});
    const auto live = open_control_socket(with_control(directory.path("www.124.sock")), "", {});
    REQUIRE(std::filesystem::exists(directory.path("www.123.sock")));
    const auto socket = open_control_socket(config, "", in(directory));
    REQUIRE(socket.has_value());
    CHECK_FALSE(std::filesystem::exists(directory.path("www.123.sock")));
    CHECK(std::filesystem::exists(directory.path("other.123.sock")));
    CHECK(connected_to_path(live->path));
}

TEST_CASE("a path of one's own must be free") {
    const TempDirectory directory;
    const Config config = with_control(directory.path("own.sock"));
    const auto first = open_control_socket(config, "", {});
    REQUIRE(first.has_value());
    const auto second = open_control_socket(config, "", {});
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().message.starts_with("--control: "));
    CHECK(check_control(config).has_value());
    CHECK_FALSE(check_control(with_control(directory.path("none/own.sock"))).has_value());
    const std::string file = directory.write("file", "text");
    CHECK_FALSE(check_control(with_control(file)).has_value());
    CHECK_FALSE(open_control_socket(with_control(file), "", {}).has_value());
    CHECK(std::filesystem::file_size(file) == 4);
}

TEST_CASE("there can be none") {
    const auto socket = open_control_socket(with_control("none"), "127.0.0.1:9000", {});
    REQUIRE(socket.has_value());
    CHECK_FALSE(socket->fd);
    CHECK(check_control(with_control("none")).has_value());
}

TEST_CASE("a directory in the way is left alone, and the next one tried") {
    const TempDirectory first;
    Config config;
    config.title = "www";
    std::filesystem::create_directory(first.path("www.sock"));
    const auto beside = open_control_socket(config, "", in(first));
    REQUIRE(beside.has_value());
    CHECK(beside->path == first.path(fmt::format("www.{}.sock", ::getpid())));
    CHECK(std::filesystem::is_directory(first.path("www.sock")));
}

TEST_CASE("sockets are found in the directories and in the folders within") {
    const TempDirectory directory;
    std::filesystem::create_directory(directory.path("www"));
    std::filesystem::create_directory_symlink("/", directory.path("link"));
    directory.write("file.sock", "");
    const auto here = open_control_socket(with_control(directory.path("a.sock")), "", {});
    const auto within = open_control_socket(with_control(directory.path("www/b.sock")), "", {});
    const auto other = open_control_socket(with_control(directory.path("c.socket")), "", {});
    REQUIRE((here && within && other));
    auto found = find_control_sockets(in(directory), ::geteuid());
    std::erase_if(found, [&](const std::string& path) { return !path.starts_with(directory.path()); });
    CHECK(found == std::vector<std::string>{here->path, within->path});
}
