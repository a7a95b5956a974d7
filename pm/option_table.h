// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pm/config.h"

namespace cede::pm {

// One setting: the same name on the command line and in a file.
struct Option {
    using Assign = std::expected<void, std::string> (*)(Config&, const std::string& value);

    std::string_view name;
    std::string_view argument;  // what --help calls its value; empty: a switch, "yes" when given
    std::string_view help;
    Assign assign;  // the error says what is wrong with the value and what would be right
    bool repeats = false;
};

// In the order of --help. `config` and `command` are not here: they are no settings.
std::span<const Option> options() noexcept;

// Another name for the same setting.
struct Alias {
    std::string_view name;
    std::string_view option;
};
std::span<const Alias> aliases() noexcept;

// By either name.
const Option* find_option(std::string_view name) noexcept;

// What --help prints, with a final line feed.
std::string help_text();

}  // namespace cede::pm
