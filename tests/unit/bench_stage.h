// SPDX-License-Identifier: Apache-2.0
// What the tests of the load generator's engine play on.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/bench/engine.h"
#include "tests/support/every_split.h"

namespace cede::tests {

// A listening Unix socket whose connections the test serves itself.
struct Server {
    explicit Server(int backlog = 8) {
        char name[] = "/tmp/cede-bench-test-XXXXXX";
        REQUIRE(mkdtemp(name) != nullptr);
        folder = name;
        path = folder + "/s";
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(listen(listener, backlog) == 0);
        bound_waits(listener);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server() {
        close(listener);
        unlink(path.c_str());
        rmdir(folder.c_str());
    }

    int accept_one() const {
        const int connection = accept(listener, nullptr, nullptr);
        REQUIRE(connection >= 0);
        bound_waits(connection);
        return connection;
    }

    static void bound_waits(int fd) {
        const timeval ten_seconds{.tv_sec = 10, .tv_usec = 0};
        REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds) == 0);
    }

    // Reads these bytes, none others.
    static void expect(int connection, protocol::Bytes bytes) {
        std::vector<std::byte> got(bytes.size());
        REQUIRE(recv(connection, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size()));
        CHECK(as_text(got) == as_text(bytes));
    }
    static void say(int connection, const std::string& bytes) {
        REQUIRE(send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
    }
    static void serve(int connection, protocol::Bytes request, const std::string& answer) {
        expect(connection, request);
        say(connection, answer);
    }
    // The engine has closed it and sent nothing more.
    static void expect_end(int connection) {
        char byte = 0;
        CHECK(recv(connection, &byte, sizeof byte, 0) == 0);
        close(connection);
    }

    std::string folder;
    std::string path;
    int listener = -1;
};

struct Finishes final : bench::Listener {
    void finished(const bench::Finished& what) override { failures.push_back(what.failure); }
    std::vector<bench::Failure> failures;
};

inline void step_until(bench::Engine& engine, Finishes& ends, std::size_t wanted) {
    const bench::Nanoseconds end = bench::now() + 10 * bench::second;
    while (ends.failures.size() < wanted && bench::now() < end) {
        engine.step(ends, end);
    }
    REQUIRE(ends.failures.size() == wanted);
}

inline void step_until_counted(bench::Engine& engine, Finishes& ends, std::uint64_t bench::Counters::*counter,
                               std::uint64_t wanted = 1) {
    const bench::Nanoseconds end = bench::now() + 10 * bench::second;
    while (engine.counters().*counter < wanted && bench::now() < end) {
        engine.step(ends, end);
    }
    REQUIRE(engine.counters().*counter == wanted);
}

}  // namespace cede::tests
