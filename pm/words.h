// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cede::pm {

// Splits a line as a shell does in the simple cases (POSIX shell, 2.2 Quoting, 2.3 Token Recognition): blanks
// separate; '...', "..." and \ quote; a # at the start of a word ends the line. Nothing is expanded: what a
// shell would expand or run ($, `, and unquoted | & ; < > ( )) is an error, and so are an open quote and a
// NUL. The error says what is wrong and the remedy.
std::expected<std::vector<std::string>, std::string> split_words(std::string_view line);

// The candidate that `name` is most likely a misspelling of; empty if none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

// `text` in single quotes for a message: control characters are escaped and long texts are cut, so that it
// stays on one short line whatever it is.
std::string quoted(std::string_view text);

}  // namespace cede::pm
