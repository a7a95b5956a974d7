// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pm/error.h"

namespace cede::pm {

// `cede status` and the like: a command for a pool that runs.
struct Command {
    enum class Verb : std::uint8_t { status, reload, stop, upgrade, reopen, children };

    Verb verb = Verb::status;
    bool json = false;      // status
    bool fast = false;      // stop
    unsigned children = 0;  // children

    // Which pool; at most one of them is set. None: the only one that can be found.
    std::string control;  // the path of its socket
    std::string title;
    std::string listen;  // an address that parse_address() takes

    std::optional<std::chrono::milliseconds> timeout;  // for the answer
    bool help = false;
};

[[nodiscard]] std::string_view name_of(Command::Verb verb) noexcept;

// All the words, in the order of --help.
[[nodiscard]] std::span<const std::string_view> command_words() noexcept;

// None: the word is none of them.
[[nodiscard]] std::optional<Command::Verb> verb_of(std::string_view word) noexcept;
[[nodiscard]] inline bool is_command(std::string_view word) noexcept {
    return verb_of(word).has_value();
}

// `arguments` begin with the command's word. All errors have exit status 2.
[[nodiscard]] std::expected<Command, Error> parse_command(std::span<const char* const> arguments);

}  // namespace cede::pm
