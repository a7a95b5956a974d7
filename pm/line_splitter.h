// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cede::pm {

// Bytes, which arrive in pieces of any size, into lines. Of a line that is too long the beginning is kept and
// the rest counted, so that memory is bounded whatever comes. Pure.
class LineSplitter {
  public:
    struct Line {
        std::string_view text;       // without the line feed; valid until the next call
        std::uint64_t left_out = 0;  // bytes behind it for which there was no room
    };

    // `longest`: of a text, in bytes. A UTF-8 character that would be cut is left out as a whole.
    explicit LineSplitter(std::size_t longest) : longest_{longest} {}

    // The next line that ends in `bytes`, which are taken off them. Nothing: no line ends there, and all of
    // them have been taken as the beginning of one.
    [[nodiscard]] std::optional<Line> next(std::string_view& bytes);

    // What there is of a line that has not ended; what follows will count as a line of its own.
    [[nodiscard]] std::optional<Line> rest();

    [[nodiscard]] bool incomplete() const noexcept { return begun_; }

  private:
    void keep(std::string_view piece);
    [[nodiscard]] Line cut(std::string_view text, std::uint64_t left_out) const noexcept;

    std::size_t longest_;
    std::string
        kept_;  // of the line that has not ended; or the text of the last one, which somebody still reads
    std::uint64_t left_out_ = 0;
    bool begun_ = false;
};

}  // namespace cede::pm
