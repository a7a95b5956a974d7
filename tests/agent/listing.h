// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <sstream>
#include <string>

namespace cede::tests {

// What the host program or `ls -l /proc/self/fd` tell of descriptors: "5 cloexec target", "... 5 -> target".
inline std::map<int, std::string> listing(const std::string& text) {
    std::map<int, std::string> result;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);) {
        if (const auto arrow = line.find(" -> "); arrow != std::string::npos) {
            const auto from = line.rfind(' ', arrow - 1) + 1;
            result[std::stoi(line.substr(from, arrow - from))] = line.substr(arrow + 4);
        } else if (line.find(" cloexec ") != std::string::npos ||
                   line.find(" inherited ") != std::string::npos) {
            const auto blank = line.find(' ');
            result[std::stoi(line.substr(0, blank))] = line.substr(blank + 1);
        }
    }
    return result;
}

inline bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace cede::tests
