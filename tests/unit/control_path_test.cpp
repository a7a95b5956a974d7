// SPDX-License-Identifier: Apache-2.0
#include "pm/control_path.h"

#include <set>
#include <string>
#include <sys/un.h>

#include <doctest/doctest.h>

using namespace cede::pm;

namespace {

std::vector<std::string> paths_for(const Environment& environment, uid_t euid) {
    std::vector<std::string> paths;
    for (const ControlDirectory& directory : control_directories(environment, euid)) {
        paths.push_back(directory.path);
    }
    return paths;
}

}  // namespace

TEST_CASE("the service manager's directory comes first, then the user's own") {
    using Paths = std::vector<std::string>;
    CHECK(paths_for({}, 0) == Paths{"/run/cede"});
    CHECK(paths_for({{"XDG_RUNTIME_DIR", "/run/user/0"}}, 0) == Paths{"/run/cede"});
    CHECK(paths_for({{"RUNTIME_DIRECTORY", "/run/cede/www:/run/other"}}, 0) ==
          Paths{"/run/cede/www", "/run/cede"});
    CHECK(paths_for({}, 33) == Paths{"/tmp/cede-33"});
    CHECK(paths_for({{"XDG_RUNTIME_DIR", "/run/user/33"}}, 33) == Paths{"/run/user/33/cede", "/tmp/cede-33"});
    CHECK(paths_for({{"XDG_RUNTIME_DIR", ""}, {"RUNTIME_DIRECTORY", "relative"}}, 33) ==
          Paths{"/tmp/cede-33"});
}

TEST_CASE("only directories of our own are made, and a private one is private") {
    const auto root = control_directories({{"RUNTIME_DIRECTORY", "/run/x"}}, 0);
    CHECK_FALSE(root.at(0).make);
    CHECK(root.at(1).make == 0755U);
    for (const ControlDirectory& directory : control_directories({{"XDG_RUNTIME_DIR", "/run/user/33"}}, 33)) {
        CHECK(directory.make == 0700U);
    }
}

TEST_CASE("a socket is named by the title, else by the address, else by the pid") {
    CHECK(control_name("www", "127.0.0.1:9000", 7) == "www");
    CHECK(control_name("", "127.0.0.1:9000", 7) == "127.0.0.1_9000");
    CHECK(control_name("", "*:9000", 7) == "any_9000");
    CHECK(control_name("", "[::1]:9000", 7) == "__1_9000");
    CHECK(control_name("", "/run/php/a.sock", 7) == "run_php_a");
    CHECK(control_name("", "/.sock", 7) == "pid-7");
    CHECK(control_name("", "", 7) == "pid-7");
    CHECK(control_name("", "unix:(unnamed)", 7) == "pid-7");
    CHECK(control_name("", "unix:@abstract", 7) == "unix__abstract");
}

TEST_CASE("nothing in a title leads out of the directory or hides the socket") {
    CHECK(control_name("../../etc/passwd", "", 7) == "_._.._etc_passwd");
    CHECK(control_name("..", "", 7) == "_.");
    CHECK(control_name(".hidden", "", 7) == "_hidden");
    CHECK(control_name("my pool\n\x1b[1m\xc3\xa4", "", 7) == "my_pool___1m__");
}

TEST_CASE("different addresses have different names") {
    std::set<std::string> names;
    const char* const addresses[] = {"127.0.0.1:9000",  "127.0.0.1:9001", "*:9000",
                                     "[::1]:9000",      "[::]:9000",      "/run/a.sock",
                                     "/run/php/a.sock", "/run/php/b.sock"};
    for (const char* const address : addresses) {
        CHECK(names.insert(control_name("", address, 7)).second);
    }
}

TEST_CASE("a long name is cut, stays apart from others, and fits with the longest pid") {
    const std::string long_one = control_name(std::string(300, 'a') + "1", "", 7);
    const std::string other = control_name(std::string(300, 'a') + "2", "", 7);
    CHECK(long_one != other);
    CHECK(long_one.size() == 64);
    for (std::size_t size = 1; size < 120; ++size) {
        const std::string directory = "/" + std::string(size, 'd');
        const auto file = control_file(directory, long_one, 4294967);
        if (file) {
            CHECK(file->size() < sizeof(sockaddr_un::sun_path));
            CHECK(is_control_file(*file, long_one));
            CHECK_FALSE(is_control_file(*file, other));
        } else {
            CHECK(size > 70);
            CHECK(file.error().find("too long") != std::string::npos);
        }
    }
}

TEST_CASE("a socket file is known by its name, with a pid or without") {
    CHECK(control_file("/run/cede", "www") == "/run/cede/www.sock");
    CHECK(control_file("/run/cede/", "www", 12) == "/run/cede/www.12.sock");
    CHECK(is_control_file("/run/cede/www.sock", "www"));
    CHECK(is_control_file("/run/cede/www.12.sock", "www"));
    CHECK_FALSE(is_control_file("/run/cede/www2.sock", "www"));
    CHECK_FALSE(is_control_file("/run/cede/www.x.sock", "www"));
    CHECK_FALSE(is_control_file("/run/cede/www..sock", "www"));
    CHECK_FALSE(is_control_file("/run/cede/www.12.sock.old", "www"));
    CHECK_FALSE(is_control_file("/run/cede/ww.sock", "www"));
    CHECK_FALSE(is_control_file("/run/cede/127.0.0.1_9000.sock", "127.0.0.1_90"));
}
