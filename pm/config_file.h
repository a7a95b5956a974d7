// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "pm/error.h"

namespace cede::pm {

// One `name = value` line.
struct FileLine {
    unsigned number = 0;  // from 1
    std::string name;
    std::vector<std::string> words;  // of the value, unquoted; at least one
};

// Lines of a configuration file, in order; blank lines and comments are left out. `path` is for messages
// only. Knows nothing of which names exist. Errors have exit status 2.
std::expected<std::vector<FileLine>, Error> parse_config_text(std::string_view text, std::string_view path);

// The file's content. Errors (exit status 1): it can not be opened or read, is no regular file, is too large.
std::expected<std::string, Error> read_config_file(const std::string& path);

}  // namespace cede::pm
