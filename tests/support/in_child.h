// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "children/unique_fd.h"

namespace cede::tests {

// Runs a function in a forked process, where it may change descriptors, user or limits as it likes. The
// function returns a string, which comes back through result(). The process is waited for.
class InChild {
  public:
    template <typename Function>
    explicit InChild(Function&& function) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            throw std::runtime_error{"pipe"};
        }
        read_end_ = children::UniqueFd{ends[0]};
        const children::UniqueFd write_end{ends[1]};
        pid_ = ::fork();
        if (pid_ < 0) {
            throw std::runtime_error{"fork"};
        }
        if (pid_ == 0) {
            // Out of the way of the low numbers, which are what some tests are about.
            const int back = ::fcntl(write_end.get(), F_DUPFD_CLOEXEC, 500);
            std::string text;
            try {
                text = std::forward<Function>(function)();
            } catch (const std::exception& error) {
                text = std::string{"exception: "} + error.what();
            }
            const ssize_t written = ::write(back, text.data(), text.size());
            // Not exit(): what runs at exit belongs to the parent.
            ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
        }
    }
    InChild(const InChild&) = delete;
    InChild& operator=(const InChild&) = delete;
    ~InChild() { wait(); }

    // What the function returned; "died" when the process did not end well.
    std::string result() {
        std::string text;
        char buffer[4096];
        for (ssize_t got = 0; (got = ::read(read_end_.get(), buffer, sizeof buffer)) > 0;) {
            text.append(buffer, static_cast<std::size_t>(got));
        }
        return wait() == 0 ? text : "died: " + text;
    }

  private:
    int wait() {
        if (pid_ > 0) {
            ::waitpid(std::exchange(pid_, -1), &status_, 0);
        }
        return status_;
    }

    children::UniqueFd read_end_;
    pid_t pid_ = -1;
    int status_ = -1;
};

template <typename Function>
std::string in_child(Function&& function) {
    return InChild{std::forward<Function>(function)}.result();
}

}  // namespace cede::tests
