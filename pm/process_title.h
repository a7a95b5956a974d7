// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace cede::pm {

// The memory that ps(1) reads the command line from: the arguments, and behind them the environment, as
// execve(2) laid them out.
struct TitleRoom {
    char* begin = nullptr;
    std::size_t arguments = 0;  // bytes of the arguments
    std::size_t all = 0;        // those of the environment as well
};

// Both arrays without their final null. Only what really is in one piece counts: anything may have been
// replaced since.
[[nodiscard]] TitleRoom title_room(std::span<char* const> arguments, std::span<char* const> environment);

// Writes the title over it, cut to the room and not within a character of UTF-8; never beyond. Environment
// strings are overwritten only by a title that is longer than the arguments.
void write_title(const TitleRoom& room, std::string_view title) noexcept;

// `text`, or its beginning: at most `size` bytes, not cut within a character of UTF-8.
[[nodiscard]] std::string_view cut(std::string_view text, std::size_t size) noexcept;

// To be called first, with what main() got, which show_title() overwrites: whoever needs the arguments later
// takes a copy.
void keep_title_room(std::span<char* const> arguments) noexcept;

// "cede: ROLE", with " [LABEL]" behind it if there is one. The short name of the process (proc(5), comm), of
// 15 bytes, becomes "cede", or "cede [LABEL]". The environment is moved elsewhere before (environ,
// getenv(3)); pointers into the old one are no longer good.
void show_title(std::string_view role, std::string_view label);

}  // namespace cede::pm
