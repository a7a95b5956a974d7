// SPDX-License-Identifier: Apache-2.0
#include "pm/words.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace cede::pm {
namespace {

class Splitter {
  public:
    explicit Splitter(std::string_view line) : line_{line} {}

    std::expected<std::vector<std::string>, std::string> split() {
        while (at_ < line_.size() && error_.empty()) {
            const char c = line_[at_];
            if (c == '#' && !in_word_) {
                break;
            }
            ++at_;
            step(c);
        }
        if (!error_.empty()) {
            return std::unexpected(error_);
        }
        end_word();
        return std::move(words_);
    }

  private:
    void step(char c) {
        if (c == ' ' || c == '\t') {
            end_word();
            return;
        }
        in_word_ = true;
        if (c == '\'') {
            single_quoted();
        } else if (c == '"') {
            double_quoted();
        } else if (c == '\\') {
            escaped();
        } else if (c == '\0') {
            error_ = "there is a NUL character; this is no text file";
        } else if (std::string_view{"$`|&;<>()"}.find(c) != std::string_view::npos) {
            error_ =
                fmt::format("cede runs no shell, so '{}' has no meaning here; put it in single quotes", c);
        } else {
            word_ += c;
        }
    }

    void single_quoted() {
        const std::size_t end = line_.find('\'', at_);
        if (end == std::string_view::npos) {
            error_ = "a ' is never closed; add the closing quote";
            return;
        }
        word_ += line_.substr(at_, end - at_);
        at_ = end + 1;
    }

    void double_quoted() {
        while (at_ < line_.size()) {
            char c = line_[at_++];
            if (c == '"') {
                return;
            }
            if (c == '$' || c == '`') {
                error_ =
                    fmt::format("cede expands nothing, so '{}' has no meaning here; use single quotes", c);
                return;
            }
            const bool escapes = c == '\\' && at_ < line_.size() &&
                                 std::string_view{"$`\"\\"}.find(line_[at_]) != std::string_view::npos;
            if (escapes) {
                c = line_[at_++];
            }
            word_ += c;
        }
        error_ = "a \" is never closed; add the closing quote";
    }

    void escaped() {
        if (at_ == line_.size()) {
            error_ = "the line ends with a \\, but lines can not be continued; write one long line";
            return;
        }
        word_ += line_[at_++];
    }

    void end_word() {
        if (std::exchange(in_word_, false)) {
            words_.push_back(std::exchange(word_, {}));
        }
    }

    std::string_view line_;
    std::size_t at_ = 0;
    bool in_word_ = false;
    std::string word_;
    std::vector<std::string> words_;
    std::string error_;
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

}  // namespace

std::expected<std::vector<std::string>, std::string> split_words(std::string_view line) {
    auto words = Splitter{line}.split();
    if (words && std::ranges::any_of(
                     *words, [](const std::string& word) { return word.find('\0') != std::string::npos; })) {
        return std::unexpected("there is a NUL character; this is no text file");
    }
    return words;
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates) {
    // A guess that differs in more than two letters, or a third, confuses more than it helps. The limit on
    // the length keeps the quadratic distance cheap.
    constexpr std::size_t longest = 40;
    if (name.size() > longest) {
        return {};
    }
    constexpr std::size_t telling_prefix = 3;
    const std::size_t most = name.size() <= telling_prefix ? 1 : std::max<std::size_t>(2, name.size() / 3);
    std::size_t best_distance = most + 1;
    std::string_view best;
    for (const std::string_view candidate : candidates) {
        if (name.size() >= telling_prefix && candidate.starts_with(name)) {
            return candidate;
        }
        if (const std::size_t distance = edit_distance(name, candidate); distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string quoted(std::string_view text) {
    constexpr std::size_t longest = 120;
    std::string out = "'";
    for (const char c : text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
            out += fmt::format("\\x{:02x}", byte);
        } else {
            out += c;
        }
    }
    return out + (text.size() > longest ? "...'" : "'");
}

}  // namespace cede::pm
