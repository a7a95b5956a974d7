// SPDX-License-Identifier: Apache-2.0
#include "pm/unix_socket.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

constexpr uid_t stranger = 4000000;

struct stat status_of(const std::string& path) {
    struct stat status {};
    REQUIRE(::lstat(path.c_str(), &status) == 0);
    return status;
}

bool exists(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0;
}

// What is at the path afterwards is what was there before.
void check_refused_and_left_alone(const std::string& path, std::string_view part) {
    CAPTURE(part);
    const struct stat before = status_of(path);
    const auto refused = listen_on_path(path, {}, 8);
    REQUIRE_FALSE(refused.has_value());
    CAPTURE(refused.error().message);
    CHECK(refused.error().message.starts_with(path));
    CHECK(refused.error().message.find(part) != std::string::npos);
    const struct stat after = status_of(path);
    CHECK(before.st_ino == after.st_ino);
    CHECK(before.st_mode == after.st_mode);
}

// errno of a connect as this user and group; 0 if it succeeds.
std::string connect_as(unsigned id, const std::string& path) {
    return in_child([&] {
        UniqueFd fd;
        if (::setgid(id) != 0 || ::setuid(id) != 0) {
            return std::string{"setuid failed"};
        }
        return std::to_string(try_connect(unix_address(path), fd));
    });
}

}  // namespace

TEST_CASE("a new socket file has the mode that was asked for, whatever the umask, and can be connected to") {
    const TempDirectory directory;
    for (const unsigned mode : {0660U, 0600U, 0666U, 0777U}) {
        for (const mode_t mask : {0U, 022U, 0777U}) {
            const mode_t before = ::umask(mask);
            const auto file = listen_on_path(directory.path("s"), {mode, {}, {}}, 8);
            CHECK(::umask(before) == mask);
            REQUIRE(file.has_value());
            CHECK((status_of(directory.path("s")).st_mode & 07777) == mode);
            CHECK_FALSE(file->replaced_stale);
            UniqueFd client;
            CHECK(try_connect(unix_address(directory.path("s")), client) == 0);
            remove_socket(directory.path("s"), file->device, file->inode);
            CHECK_FALSE(exists(directory.path("s")));
        }
    }
}

TEST_CASE("the listening descriptor is close-on-exec and non-blocking, and bound to the very path") {
    const TempDirectory directory;
    const auto file = listen_on_path(directory.path("s"), {}, 8);
    REQUIRE(file.has_value());
    CHECK((::fcntl(file->fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(file->fd.get(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK(reinterpret_cast<const sockaddr_un&>(address_of(file->fd.get()).storage).sun_path ==
          directory.path("s"));
    CHECK(status_of(directory.path("s")).st_ino == file->inode);
}

TEST_CASE("owner and group decide who can connect" * doctest::skip(::geteuid() != 0)) {
    const TempDirectory directory;
    const auto file = listen_on_path(directory.path("s"), {0660, {}, 4000001}, 8);
    REQUIRE(file.has_value());
    CHECK(status_of(directory.path("s")).st_uid == ::geteuid());
    CHECK(status_of(directory.path("s")).st_gid == 4000001);
    CHECK(connect_as(4000001, directory.path("s")) == "0");
    CHECK(connect_as(stranger, directory.path("s")) == std::to_string(EACCES));
    const auto owned = listen_on_path(directory.path("t"), {0600, stranger, {}}, 8);
    REQUIRE(owned.has_value());
    CHECK(connect_as(stranger, directory.path("t")) == "0");
    CHECK(connect_as(4000001, directory.path("t")) == std::to_string(EACCES));
}

TEST_CASE("a default access list of the directory does not change who can connect") {
    const TempDirectory directory;
    struct Entry {
        std::uint16_t tag;
        std::uint16_t permissions;
        std::uint32_t id;
    };
    // acl(5) in the layout of linux/posix_acl_xattr.h: version 2; the group may only read, one more user all.
    struct {
        std::uint32_t version = 2;
        std::array<Entry, 5> entries{
            {{0x01, 7, ~0U}, {0x02, 7, stranger}, {0x04, 4, ~0U}, {0x10, 7, ~0U}, {0x20, 0, ~0U}}};
    } list;
    if (::setxattr(directory.path().c_str(), "system.posix_acl_default", &list, sizeof list, 0) != 0) {
        MESSAGE("no access lists on this file system");
        return;
    }
    const auto file = listen_on_path(directory.path("s"), {}, 8);
    REQUIRE(file.has_value());
    CHECK((status_of(directory.path("s")).st_mode & 07777) == 0660);
    CHECK(::getxattr(directory.path("s").c_str(), "system.posix_acl_access", nullptr, 0) == -1);
    CHECK(errno == ENODATA);
}

TEST_CASE("a change of owner that is not allowed is an error and leaves no file" *
          doctest::skip(::geteuid() != 0)) {
    const TempDirectory directory;
    REQUIRE(::chmod(directory.path().c_str(), 0777) == 0);
    const std::string message = in_child([&] {
        if (::setgid(stranger) != 0 || ::setuid(stranger) != 0) {
            return std::string{"setuid failed"};
        }
        const auto file = listen_on_path(directory.path("s"), {0660, 0, {}}, 8);
        return file ? "listens" : file.error().message;
    });
    CAPTURE(message);
    CHECK(message.find("start cede as root") != std::string::npos);
    CHECK_FALSE(exists(directory.path("s")));
}

TEST_CASE("a socket file that nobody serves any more is replaced") {
    const TempDirectory directory;
    static_cast<void>(listening_socket(unix_address(directory.path("s"))));
    REQUIRE(exists(directory.path("s")));
    const auto file = listen_on_path(directory.path("s"), {}, 8);
    REQUIRE(file.has_value());
    CHECK(file->replaced_stale);
    UniqueFd client;
    CHECK(try_connect(unix_address(directory.path("s")), client) == 0);
}

TEST_CASE("a socket that a live server answers on is refused and goes on being served") {
    const TempDirectory directory;
    const UniqueFd live = listening_socket(unix_address(directory.path("s")));
    check_refused_and_left_alone(directory.path("s"),
                                 "process " + std::to_string(::getpid()) + " already serves");
    UniqueFd client;
    CHECK(try_connect(unix_address(directory.path("s")), client) == 0);
}

TEST_CASE("a live server whose queue is full is alive") {
    const TempDirectory directory;
    const UniqueFd live = listening_socket(unix_address(directory.path("s")), 0);
    std::vector<UniqueFd> clients;
    UniqueFd client;
    int error = 0;
    while ((error = try_connect(unix_address(directory.path("s")), client)) == 0) {
        clients.push_back(std::move(client));
        REQUIRE(clients.size() < 10);
    }
    REQUIRE(error == EAGAIN);
    check_refused_and_left_alone(directory.path("s"), "already serves");
}

TEST_CASE("what is no socket, or a socket of another type, is refused and left alone") {
    const TempDirectory directory;
    directory.write("file", "precious");
    check_refused_and_left_alone(directory.path("file"), "a regular file at this path");
    REQUIRE(::mkdir(directory.path("directory").c_str(), 0755) == 0);
    check_refused_and_left_alone(directory.path("directory"), "a directory at this path");
    REQUIRE(::symlink("nowhere", directory.path("dangling").c_str()) == 0);
    check_refused_and_left_alone(directory.path("dangling"), "a symbolic link at this path");
    const UniqueFd live = listening_socket(unix_address(directory.path("live")));
    REQUIRE(::symlink("live", directory.path("link").c_str()) == 0);
    check_refused_and_left_alone(directory.path("link"), "a symbolic link at this path");
    REQUIRE(::mkfifo(directory.path("pipe").c_str(), 0600) == 0);
    check_refused_and_left_alone(directory.path("pipe"), "a special file at this path");
    const UniqueFd datagram = bound_socket(unix_address(directory.path("datagram")), SOCK_DGRAM);
    check_refused_and_left_alone(directory.path("datagram"), "another type");
}

TEST_CASE("a missing directory, and one that is none, are named") {
    const TempDirectory directory;
    directory.write("file", "");
    CHECK(listen_on_path(directory.path("no/s"), {}, 8)
              .error()
              .message.find("no directory " + directory.path("no")) != std::string::npos);
    CHECK(listen_on_path(directory.path("file/s"), {}, 8).error().message.find("is not a directory") !=
          std::string::npos);
}

TEST_CASE("of processes that start at the same moment exactly one gets the path") {
    const TempDirectory directory;
    const std::string path = directory.path("s");
    for (int round = 0; round < 20; ++round) {
        // A stale file, so that every one of them has something to remove.
        if (!exists(path)) {
            static_cast<void>(listening_socket(unix_address(path)));
        }
        int start[2];
        int finish[2];
        REQUIRE(::pipe2(start, O_CLOEXEC) == 0);
        REQUIRE(::pipe2(finish, O_CLOEXEC) == 0);
        int results[2];
        REQUIRE(::pipe2(results, O_CLOEXEC) == 0);
        std::vector<std::unique_ptr<InChild>> children;
        for (int i = 0; i < 6; ++i) {
            children.push_back(std::make_unique<InChild>([&] {
                char nothing = 0;
                ::close(start[1]);
                ::close(finish[1]);
                static_cast<void>(::read(start[0], &nothing, 1));
                const auto file = listen_on_path(path, {}, 8);
                const char result = file ? 'w' : 'l';
                static_cast<void>(::write(results[1], &result, 1));
                // A winner that left would be stale itself.
                static_cast<void>(::read(finish[0], &nothing, 1));
                return file || file.error().message.find("already serves") != std::string::npos
                           ? std::string{}
                           : file.error().message;
            }));
        }
        ::close(start[1]);
        int winners = 0;
        for (std::size_t i = 0; i < children.size(); ++i) {
            char result = 0;
            REQUIRE(::read(results[0], &result, 1) == 1);
            winners += result == 'w' ? 1 : 0;
        }
        CHECK(winners == 1);
        UniqueFd client;
        CHECK(try_connect(unix_address(path), client) == 0);
        ::close(finish[1]);
        for (const auto& child : children) {
            CHECK(child->result().empty());
        }
        for (const int fd : {start[0], finish[0], results[0], results[1]}) {
            ::close(fd);
        }
    }
}

TEST_CASE("a directory that somebody has locked for good ends in an error, not in a hang") {
    const TempDirectory directory;
    const UniqueFd lock{::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    REQUIRE(::flock(lock.get(), LOCK_EX) == 0);
    const auto refused = listen_on_path(directory.path("s"), {}, 8);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("has locked directory") != std::string::npos);
}

TEST_CASE("only the file that was made is removed, never its successor") {
    const TempDirectory directory;
    const std::string path = directory.path("s");
    const auto first = listen_on_path(path, {}, 8);
    REQUIRE(first.has_value());
    remove_socket(path, first->device, first->inode + 1);
    remove_socket(path, first->device + 1, first->inode);
    CHECK(exists(path));
    // Moved away, its inode lives on, so that the next file can not get the same one.
    REQUIRE(::rename(path.c_str(), directory.path("old").c_str()) == 0);
    const auto second = listen_on_path(path, {}, 8);
    REQUIRE(second.has_value());
    remove_socket(path, first->device, first->inode);
    CHECK(exists(path));
    remove_socket(path, second->device, second->inode);
    CHECK_FALSE(exists(path));
    remove_socket(path, second->device, second->inode);
    remove_socket(directory.path("no/s"), 0, 0);
}
