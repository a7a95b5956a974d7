// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cede::pm {

// Why something could not be done, for the person at the terminal. One line without a line feed: what was
// wrong, where (option, file and line, path or address), and the remedy.
struct Error {
    static constexpr int failure = 1;
    static constexpr int usage = 2;

    std::string message;
    int exit_status = failure;
};

}  // namespace cede::pm
