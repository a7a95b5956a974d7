// SPDX-License-Identifier: Apache-2.0
#include "pm/parent_process.h"

#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"

using cede::pm::parent_handle;
using cede::tests::in_child;

namespace {

bool is_readable(int fd, int patience_ms) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, patience_ms) == 1 && (watched.revents & POLLIN) != 0;
}

// In a process of its own: a child says what its handle of that process does, before and after the end of
// that process.
std::string watched_end() {
    int ends[2];
    int told[2];
    if (::pipe(ends) != 0 || ::pipe(told) != 0) {
        return "pipe";
    }
    const pid_t middle = ::fork();
    if (middle == 0) {
        if (::fork() == 0) {
            const auto handle = parent_handle(::getppid());
            std::string text = handle ? "watches; " : "no handle; ";
            text += is_readable(handle.get(), 0) ? "early; " : "";
            // The parent ends when it hears from us.
            (void)!::write(told[1], "x", 1);
            text += is_readable(handle.get(), 5000) ? "noticed" : "missed";
            (void)!::write(ends[1], text.data(), text.size());
            ::_exit(0);
        }
        char byte = 0;
        (void)!::read(told[0], &byte, 1);
        ::_exit(0);
    }
    ::waitpid(middle, nullptr, 0);
    ::close(ends[1]);
    ::close(told[1]);
    std::string text;
    char buffer[256];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
}

}  // namespace

TEST_CASE("the end of the parent process is told by its handle, and nothing before") {
    CHECK(in_child(watched_end) == "watches; noticed");
}

TEST_CASE("there is nobody to watch where the parent is process 1, unseen, or another one by now") {
    CHECK_FALSE(parent_handle(1));
    CHECK_FALSE(parent_handle(0));
    CHECK_FALSE(parent_handle(::getpid()));
}
