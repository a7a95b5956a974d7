// SPDX-License-Identifier: Apache-2.0
#include "pm/line_splitter.h"

#include <algorithm>

namespace cede::pm {
namespace {

// How many bytes a character has that begins like this (RFC 3629, 3).
std::size_t length_of_character(unsigned char first) noexcept {
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

// `text` without a character at its end that is not all there.
std::string_view without_half_character(std::string_view text) noexcept {
    constexpr std::size_t longest_character = 4;
    for (std::size_t back = 1; back <= std::min(longest_character, text.size()); ++back) {
        const auto byte = static_cast<unsigned char>(text[text.size() - back]);
        if ((byte & 0xc0U) != 0x80) {
            return length_of_character(byte) > back ? text.substr(0, text.size() - back) : text;
        }
    }
    return text;
}

}  // namespace

std::optional<LineSplitter::Line> LineSplitter::next(std::string_view& bytes) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (end == std::string_view::npos) {
        bytes = {};
        if (!piece.empty()) {
            keep(piece);
        }
        return std::nullopt;
    }
    bytes.remove_prefix(end + 1);
    if (!begun_) {
        return cut(piece, 0);
    }
    keep(piece);
    begun_ = false;
    return cut(kept_, left_out_);
}

std::optional<LineSplitter::Line> LineSplitter::rest() {
    if (!begun_) {
        return std::nullopt;
    }
    begun_ = false;
    return cut(kept_, left_out_);
}

void LineSplitter::keep(std::string_view piece) {
    if (!begun_) {
        begun_ = true;
        kept_.clear();
        left_out_ = 0;
    }
    const std::string_view fits = piece.substr(0, longest_ - kept_.size());
    kept_ += fits;
    left_out_ += piece.size() - fits.size();
}

LineSplitter::Line LineSplitter::cut(std::string_view text, std::uint64_t left_out) const noexcept {
    const std::size_t whole = text.size();
    text = text.substr(0, longest_);
    if (left_out > 0 || text.size() < whole) {
        text = without_half_character(text);
    }
    return {text, left_out + (whole - text.size())};
}

}  // namespace cede::pm
