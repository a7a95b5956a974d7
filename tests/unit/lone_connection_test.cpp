// SPDX-License-Identifier: Apache-2.0
#include "pm/lone_connection.h"

#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "pm/inherited.h"
#include "pm/log.h"
#include "tests/support/in_child.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace cede::tests;
using cede::protocol::Protocol;

namespace {

Config running(std::string command, Protocol protocol = Protocol::unknown) {
    Config config;
    config.command = {std::move(command)};
    config.protocol = protocol;
    config.origins["command"] = "command";
    return config;
}

// What connection_on_descriptor_0() says to this one; -1: closed.
bool is_connection(int fd) {
    return in_child([fd] {
               if (fd < 0) {
                   ::close(0);
               } else {
                   ::dup2(fd, 0);
               }
               return std::string{connection_on_descriptor_0() ? "yes" : "no"};
           }) == "yes";
}

struct Pair {
    Pair() {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        ours = UniqueFd{ends[0]};
        theirs = UniqueFd{ends[1]};
    }
    UniqueFd ours;
    UniqueFd theirs;
};

}  // namespace

TEST_CASE("a connected stream socket on descriptor 0 is told from everything else") {
    const Pair pair;
    CHECK(is_connection(pair.theirs.get()));
    const UniqueFd listener = listening_socket(loopback4());
    CHECK_FALSE(is_connection(listener.get()));
    const UniqueFd client = connected_to(address_of(listener.get()));
    CHECK(is_connection(client.get()));
    const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    CHECK_FALSE(is_connection(null.get()));
    CHECK_FALSE(is_connection(bound_socket(loopback4(), SOCK_DGRAM).get()));
    CHECK_FALSE(is_connection(-1));
}

TEST_CASE("a connection is for lsphp when --protocol, the padding or the command's name says so") {
    const Environment padded{{"LSAPI_PADDING", "xxx"}};
    CHECK(is_for_lsphp(running("/x/php", Protocol::lsapi), {}));
    CHECK_FALSE(is_for_lsphp(running("/x/lsphp", Protocol::fastcgi), padded));
    CHECK(is_for_lsphp(running("/x/php"), padded));
    CHECK(is_for_lsphp(running("/x/lsphp.real"), {}));
    CHECK(is_for_lsphp(running("lsphp83"), {}));
    CHECK_FALSE(is_for_lsphp(running("/usr/bin/php-cgi8.2"), {}));
    CHECK_FALSE(is_for_lsphp(running("/x/lsphp/php-cgi"), {}));
}

TEST_CASE("the connection is served by the command, with its arguments and an environment for lsphp") {
    const TempDirectory directory;
    Config config = running(directory.write("lsphp", "#!/bin/sh\necho \"$1 $A $CEDE_CHILD.\" >&0\n", 0755));
    config.command.emplace_back("-n");
    const Pair pair;
    const std::string failure = in_child([&] {
        ::dup2(pair.theirs.get(), 0);
        ::setenv("A", "1", 1);
        ::setenv("CEDE_CHILD", "/x", 1);
        set_log_level(LogLevel::error);
        return become_lone_lsphp(config, 1000).message;
    });
    CHECK(failure.empty());
    char buffer[64] = {};
    REQUIRE(::read(pair.ours.get(), buffer, sizeof buffer - 1) > 0);
    CHECK(std::string{buffer} == "-n 1 .\n");
}

TEST_CASE("it runs where and with the variables that the options say") {
    const TempDirectory directory;
    Config config =
        running(directory.write("lsphp", "#!/bin/sh\necho \"$A $B $(pwd) $(umask).\" >&0\n", 0755));
    config.environment = {{{"A", "1"}, {"B", "$COPIED"}}, true};
    config.umask = 027;
    config.chdir = directory.path();
    const Pair pair;
    const std::string failure = in_child([&] {
        ::dup2(pair.theirs.get(), 0);
        ::setenv("COPIED", "2", 1);
        set_log_level(LogLevel::error);
        return become_lone_lsphp(config, 1000).message;
    });
    CHECK(failure.empty());
    char buffer[4096] = {};
    REQUIRE(::read(pair.ours.get(), buffer, sizeof buffer - 1) > 0);
    CHECK(std::string{buffer} == "1 2 " + directory.path() + " 0027.\n");
    config.chroot = "/";
    CHECK(become_lone_lsphp(config, 1000).message.starts_with("--chroot: only root"));
}

TEST_CASE("before that, one line names the variable to set") {
    const TempDirectory directory;
    const Config config = running(directory.write("lsphp", "#!/bin/sh\n", 0755));
    const std::string log = directory.path("log");
    CHECK(in_child([&] {
              ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), 2);
              (void)open_log(config);  // stderr may be known from lines of other tests
              return become_lone_lsphp(config, 1000).message;
          }).empty());
    std::ifstream file{log};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    CAPTURE(text);
    CHECK(text.find("PHP_LSAPI_CHILDREN=10") != std::string::npos);
    CHECK(text.find(config.command.front()) != std::string::npos);
    CHECK(text.find('\n') == text.size() - 1);
}

TEST_CASE("as root, or without a program, the reason is told") {
    const Error as_root = become_lone_lsphp(running("/bin/true"), 0);
    CHECK(as_root.message.find("cede is root") != std::string::npos);
    CHECK(as_root.message.find("PHP_LSAPI_CHILDREN=10") != std::string::npos);
    CHECK(as_root.exit_status == Error::failure);
    const Error missing = become_lone_lsphp(running("/nonexistent/lsphp"), 1000);
    CHECK(missing.message.starts_with("command '/nonexistent/lsphp': No such file"));
}
