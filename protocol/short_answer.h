// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "protocol/bytes.h"
#include "protocol/detect.h"

namespace cede::protocol {

// A whole answer in place of PHP's. All text is without line ends, but for the body.
struct ShortAnswer {
    std::uint16_t status = 200;
    std::string_view reason = "OK";
    std::span<const std::string_view> lines;  // more header lines: "Retry-After: 1"
    std::string_view body;                    // text/plain
    // FastCGI: the protocol status is FCGI_OVERLOADED, and not FCGI_REQUEST_COMPLETE. What web servers make
    // of it stands in docs/fastcgi.md.
    bool overloaded = false;
};

// Writes it as the end of one request, of the FastCGI id `id`: whole, or nothing if it does not fit into
// `out` or into one record or packet. Returns the number of bytes.
[[nodiscard]] std::size_t write_short_answer(Protocol protocol, MutableBytes out, std::uint16_t id,
                                             const ShortAnswer& answer) noexcept;

}  // namespace cede::protocol
