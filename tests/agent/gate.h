// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <utility>

#include <doctest/doctest.h>

#include "children/unique_fd.h"

namespace cede::tests {

// A FIFO at which scripts wait until it opens, at the latest when the test ends.
struct Gate {
    explicit Gate(std::string file) : path{std::move(file)} { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { open(); }
    // Whoever waits there goes on when what this returns is closed. Empty: nobody waits there.
    [[nodiscard]] children::UniqueFd hold() const {
        return children::UniqueFd{::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)};
    }
    // False: nobody waits there.
    bool open() const { return static_cast<bool>(hold()); }
    std::string path;
};

}  // namespace cede::tests
