// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "pm/command.h"

namespace cede::pm {

// What is asked for at the control socket, and how HTTP says it: docs/control.md.
struct ControlRequest {
    Command::Verb verb = Command::Verb::status;
    bool fast = false;      // stop
    unsigned children = 0;  // children

    bool operator==(const ControlRequest&) const = default;
};

struct HttpRequest {
    std::string method;
    std::string target;
    std::string body;  // JSON, or empty
};

struct HttpRefusal {
    unsigned status = 400;
    std::string text;
    std::string_view allow = {};  // with 405: the right method
};

[[nodiscard]] HttpRequest to_http(const ControlRequest& request);

// Whatever comes in.
[[nodiscard]] std::expected<ControlRequest, HttpRefusal> from_http(std::string_view method,
                                                                   std::string_view target,
                                                                   std::string_view body);

}  // namespace cede::pm
