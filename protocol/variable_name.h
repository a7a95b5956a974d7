// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cede::protocol {

// Compares a name that comes byte by byte with the one wanted, as PHP spells names in $_SERVER
// (php_register_variable_ex in php-src, main/php_variables.c): blanks in front are left out, a blank, a dot
// and a bracket become an underscore, a NUL ends the name, and NAME[x] is an element of NAME.
class SpelledAs {
  public:
    explicit SpelledAs(std::string_view wanted) noexcept : wanted_{wanted} {}

    void feed(char letter) noexcept {
        if (over_ || differs_ || (at_ == 0 && letter == ' ')) {
            return;
        }
        over_ = letter == '\0' || (letter == '[' && at_ == wanted_.size());
        if (!over_) {
            const bool replaced = letter == ' ' || letter == '.' || letter == '[';
            differs_ = at_ == wanted_.size() || wanted_.data()[at_] != (replaced ? '_' : letter);
            ++at_;
        }
    }
    // The name is complete.
    [[nodiscard]] bool same() const noexcept { return !differs_ && at_ == wanted_.size() && at_ > 0; }

  private:
    std::string_view wanted_;
    std::size_t at_ = 0;
    bool over_ = false;
    bool differs_ = false;
};

}  // namespace cede::protocol
