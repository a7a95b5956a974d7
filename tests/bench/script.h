// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cede::bench {

// What a request says about its script.
struct Script {
    explicit Script(const std::string& file)
        : name(file.find('/') == std::string::npos ? file : file.substr(file.rfind('/'))),
          root(file.substr(0, file.size() - name.size())) {}

    std::string name;  // as in the URI
    std::string root;  // the folder
};

// Throws std::invalid_argument: the name makes a request that is too large for `what`.
[[noreturn]] void refuse_script(const std::string& file, const std::string& what);

}  // namespace cede::bench
