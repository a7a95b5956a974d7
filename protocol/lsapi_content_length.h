// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "protocol/bytes.h"

namespace cede::protocol::lsapi {

// The length of a body from the value of its Content-Length header, which may come in pieces. Reads as
// strtoll(3) does, because lsphp does: blanks, a sign, digits up to the first other byte, not beyond the
// largest 64-bit number. A negative length and no number at all are no body, as in lsphp.
class ContentLength {
  public:
    constexpr void feed(Bytes piece) noexcept {
        for (const std::byte byte : piece) {
            feed(std::to_integer<unsigned char>(byte));
        }
    }
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return negative_ ? 0 : value_; }

  private:
    enum class Part : std::uint8_t { blanks, digits, over };
    static constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();

    constexpr void feed(unsigned char letter) noexcept {
        const bool blank = letter == ' ' || (letter >= '\t' && letter <= '\r');
        if (part_ == Part::over || (part_ == Part::blanks && blank)) {
            return;
        }
        if (part_ == Part::blanks && (letter == '+' || letter == '-')) {
            negative_ = letter == '-';
            part_ = Part::digits;
        } else if (letter >= '0' && letter <= '9') {
            const auto digit = static_cast<std::uint64_t>(letter - '0');
            value_ = value_ > (largest - digit) / 10 ? largest : value_ * 10 + digit;
            part_ = Part::digits;
        } else {
            part_ = Part::over;
        }
    }

    std::uint64_t value_ = 0;
    Part part_ = Part::blanks;
    bool negative_ = false;
};

}  // namespace cede::protocol::lsapi
