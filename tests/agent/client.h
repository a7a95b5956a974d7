// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "children/unique_fd.h"

namespace cede::tests {

// A web server's end of a connection to the C host program.

// A request for one of its commands (tests/agent/commands.c).
std::string command(std::string_view name, std::string_view argument = {}, bool keep = true,
                    std::string_view body = {});

struct Answer {
    std::string text;       // what STDOUT records held
    bool complete = false;  // END_REQUEST has come
    bool closed = false;    // the stream ended first
};
// The next answer, which must come within ten seconds.
Answer read_answer(int fd);

// Sends a request and reads its answer; the text, or in parentheses what happened instead.
std::string ask(int fd, const std::string& request);

// The stream ends (within five seconds) and nothing more comes on it.
bool ends_cleanly(int fd);

}  // namespace cede::tests
