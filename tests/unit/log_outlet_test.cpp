// SPDX-License-Identifier: Apache-2.0
#include "pm/log_outlet.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/in_child.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using cede::children::UniqueFd;
using cede::tests::in_child;
using cede::tests::TempDirectory;

namespace {

struct Pair {
    UniqueFd read_end;
    UniqueFd write_end;
};

Pair make_pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    return {UniqueFd{ends[0]}, UniqueFd{ends[1]}};
}

Pair make_socket_pair(int type) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
    return {UniqueFd{ends[0]}, UniqueFd{ends[1]}};
}

std::string content(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

// Writes until it is refused; it hangs if it is not refused. Returns the errno.
int fill(LogOutlet& outlet) {
    const std::string line(300, 'x');
    for (int i = 0; i < 1'000'000; ++i) {
        if (const auto written = outlet.write(line); !written) {
            return written.error();
        }
    }
    return 0;
}

std::string name_of_stream(int fd) {
    struct stat status {};
    REQUIRE(::fstat(fd, &status) == 0);
    return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

UniqueFd bound_datagram_socket(const std::string& path) {
    UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return fd;
}

std::string received(int fd) {
    char buffer[1000];
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(buffer, static_cast<std::size_t>(size));
}

}  // namespace

TEST_CASE("a full pipe refuses at once, and its flags stay as they were for the others who have it") {
    const Pair pipe = make_pipe();
    InheritedOutlet outlet{pipe.write_end.get(), nullptr};
    CHECK(fill(outlet) == EAGAIN);
    CHECK((::fcntl(pipe.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
    char page[4096];
    REQUIRE(::read(pipe.read_end.get(), page, sizeof page) == sizeof page);
    CHECK(outlet.write("line\n") == 5);
}

TEST_CASE("a full pipe of another user, which can't be opened anew, refuses at once as well") {
    if (::geteuid() != 0) {
        return;
    }
    const Pair pipe = make_pipe();
    CHECK(in_child([&pipe] {
              if (::setresuid(65534, 65534, 65534) != 0) {
                  return std::string{"setresuid"};
              }
              const bool closed =
                  ::open(fmt::format("/proc/self/fd/{}", pipe.write_end.get()).c_str(), O_WRONLY) < 0;
              InheritedOutlet outlet{pipe.write_end.get(), nullptr};
              return std::string{closed && fill(outlet) == EAGAIN ? "refused" : "not so"};
          }) == "refused");
}

TEST_CASE("a full socket refuses at once, of streams and of packets") {
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
        const Pair pair = make_socket_pair(type);
        InheritedOutlet outlet{pair.write_end.get(), nullptr};
        CHECK(fill(outlet) == EAGAIN);
        CHECK((::fcntl(pair.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
    }
}

TEST_CASE("a reader that has gone is an error and no end of the program") {
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    Pair pipe = make_pipe();
    InheritedOutlet outlet{pipe.write_end.get(), nullptr};
    pipe.read_end.reset();
    CHECK(outlet.write("x") == std::unexpected(EPIPE));
    std::signal(SIGPIPE, before);
    Pair pair = make_socket_pair(SOCK_STREAM);
    InheritedOutlet socket{pair.write_end.get(), nullptr};
    pair.read_end.reset();
    CHECK(socket.write("x") == std::unexpected(EPIPE));
}

TEST_CASE("a plain file that others write to through the same descriptor is written to by turns") {
    const TempDirectory folder;
    const std::string path = folder.write("log", "");
    const UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    InheritedOutlet outlet{fd.get(), nullptr};
    CHECK(outlet.write("one ") == 4);
    CHECK(::write(fd.get(), "two ", 4) == 4);
    CHECK(outlet.write("three") == 5);
    CHECK(content(path) == "one two three");
}

TEST_CASE("a disk without room is an error") {
    const UniqueFd full{::open("/dev/full", O_WRONLY | O_CLOEXEC)};
    InheritedOutlet outlet{full.get(), nullptr};
    CHECK(outlet.write("x") == std::unexpected(ENOSPC));
}

TEST_CASE("the journal is known by the device and inode of the descriptor") {
    const Pair journal = make_socket_pair(SOCK_STREAM);
    const Pair other = make_socket_pair(SOCK_STREAM);
    const std::string name = name_of_stream(journal.write_end.get());
    const auto stamp = [](int fd, const char* variable) { return InheritedOutlet{fd, variable}.stamp(); };
    CHECK(stamp(journal.write_end.get(), name.c_str()) == LogStamp::journal);
    CHECK(stamp(journal.write_end.get(), nullptr) == LogStamp::time);
    CHECK(stamp(journal.write_end.get(), "") == LogStamp::time);
    CHECK(stamp(journal.write_end.get(), (name + "1").c_str()) == LogStamp::time);
    CHECK(stamp(other.write_end.get(), name.c_str()) == LogStamp::time);
    CHECK(stamp(-1, name.c_str()) == LogStamp::time);
}

TEST_CASE("a log file is made for its owner and group alone, and appended to") {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    const mode_t before = ::umask(0);
    auto outlet = FileOutlet::open(path);
    ::umask(before);
    REQUIRE(outlet.has_value());
    CHECK((*outlet)->write("one\n") == 4);
    std::ofstream{path, std::ios::app} << "somebody else\n";
    CHECK((*outlet)->write("two\n") == 4);
    CHECK(content(path) == "one\nsomebody else\ntwo\n");
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0640);
    CHECK((*FileOutlet::open(path))->write("three\n") == 6);
    CHECK(content(path) == "one\nsomebody else\ntwo\nthree\n");
}

TEST_CASE(
    "a log file that was renamed, removed or replaced has moved, and is opened anew with no descriptor "
    "more") {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    auto outlet = FileOutlet::open(path);
    REQUIRE(outlet.has_value());
    const auto descriptors = [] {
        return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
    };
    const auto before = descriptors();
    for (const char* how : {"renamed", "removed", "replaced"}) {
        CAPTURE(how);
        CHECK_FALSE((*outlet)->moved());
        std::filesystem::rename(path, folder.path("old"));
        if (how == std::string{"removed"}) {
            std::filesystem::remove(folder.path("old"));
        } else if (how == std::string{"replaced"}) {
            folder.write("cede.log", "");
        }
        CHECK((*outlet)->moved());
        CHECK((*outlet)->reopen().has_value());
        CHECK_FALSE((*outlet)->moved());
        CHECK((*outlet)->write("x") == 1);
        CHECK(content(path) == "x");
    }
    CHECK(descriptors() == before);
}

TEST_CASE("a log file that can't be opened anew stays open") {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    auto outlet = FileOutlet::open(path);
    REQUIRE(outlet.has_value());
    std::filesystem::rename(path, folder.path("old"));
    std::filesystem::create_directory(path);
    CHECK((*outlet)->reopen() == std::unexpected(EISDIR));
    CHECK((*outlet)->write("still here") == 10);
    CHECK(content(folder.path("old")) == "still here");
}

TEST_CASE(
    "a log file that can't be opened is named with the reason and the remedy, with and without opening it") {
    const TempDirectory folder;
    const struct {
        std::string path;
        const char* reason;
        const char* remedy;
    } rows[] = {
        {folder.path("absent/cede.log"), "No such file or directory", "create its folder"},
        {folder.write("file", "") + "/cede.log", "Not a directory", "create its folder"},
        {folder.path(), "Is a directory", "give the path of a file"},
    };
    for (const auto& row : rows) {
        const auto outlet = FileOutlet::open(row.path);
        REQUIRE_FALSE(outlet.has_value());
        for (const std::string& message : {outlet.error(), log_file_objection(row.path)}) {
            CAPTURE(message);
            CHECK(message.find(row.path) != std::string::npos);
            CHECK(message.find(row.reason) != std::string::npos);
            CHECK(message.find(row.remedy) != std::string::npos);
        }
    }
    CHECK(log_file_objection(folder.path("new.log")).empty());
    CHECK_FALSE(std::filesystem::exists(folder.path("new.log")));
}

TEST_CASE("a log file that this user may not write to is refused, with and without opening it") {
    if (::geteuid() != 0) {
        return;
    }
    const TempDirectory folder;
    const std::string file = folder.write("cede.log", "", 0600);
    CHECK(in_child([&] {
              if (::setresuid(65534, 65534, 65534) != 0) {
                  return std::string{"setresuid"};
              }
              for (const std::string& path : {file, folder.path("new.log")}) {
                  const std::string reason = "Permission denied; see that this user may write there";
                  const auto opened = FileOutlet::open(path);
                  if (opened || opened.error().find(reason) == std::string::npos ||
                      log_file_objection(path) != opened.error()) {
                      return "no objection to " + path;
                  }
              }
              return std::string{"refused"};
          }) == "refused");
}

TEST_CASE("each line for syslog is one datagram, and a full queue refuses at once") {
    const TempDirectory folder;
    const UniqueFd daemon = bound_datagram_socket(folder.path("log"));
    auto outlet = SyslogOutlet::open(folder.path("log"));
    REQUIRE(outlet.has_value());
    CHECK((*outlet)->stamp() == LogStamp::syslog);
    CHECK((*outlet)->write("<28>one") == 7);
    CHECK((*outlet)->write("<28>two") == 7);
    CHECK(received(daemon.get()) == "<28>one");
    CHECK(received(daemon.get()) == "<28>two");
    CHECK(fill(**outlet) == EAGAIN);
}

TEST_CASE("a syslog daemon that was restarted is found again, and until then lines are refused") {
    const TempDirectory folder;
    UniqueFd daemon = bound_datagram_socket(folder.path("log"));
    auto outlet = SyslogOutlet::open(folder.path("log"));
    REQUIRE(outlet.has_value());
    daemon.reset();
    CHECK((*outlet)->write("lost") == std::unexpected(ECONNREFUSED));
    std::filesystem::remove(folder.path("log"));
    CHECK((*outlet)->write("lost") == std::unexpected(ENOENT));
    daemon = bound_datagram_socket(folder.path("log"));
    CHECK((*outlet)->write("found") == 5);
    CHECK(received(daemon.get()) == "found");
}

TEST_CASE("without a syslog daemon the message names the socket and the remedy") {
    const auto outlet = SyslogOutlet::open("/no/such/log");
    REQUIRE_FALSE(outlet.has_value());
    CHECK(outlet.error().find("/no/such/log") != std::string::npos);
    CHECK(outlet.error().find("start a syslog daemon") != std::string::npos);
}
