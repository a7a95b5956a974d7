// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/fastcgi.h"
#include "protocol/lsapi.h"

namespace cede::protocol {

enum class Protocol : std::uint8_t { unknown, fastcgi, lsapi };

// What a connection speaks, by the first byte that the web server sends: a FastCGI record begins with its
// version, an LSAPI packet with 'L'.
[[nodiscard]] constexpr Protocol detect(std::byte first) noexcept {
    switch (std::to_integer<std::uint8_t>(first)) {
        case fastcgi::version_1:
            return Protocol::fastcgi;
        case lsapi::magic_0:
            return Protocol::lsapi;
        default:
            return Protocol::unknown;
    }
}

// The enumerator in words, as options and log lines spell it.
[[nodiscard]] constexpr std::string_view name_of(Protocol protocol) noexcept {
    switch (protocol) {
        case Protocol::fastcgi:
            return "fastcgi";
        case Protocol::lsapi:
            return "lsapi";
        case Protocol::unknown:
            break;
    }
    return "unknown";
}

}  // namespace cede::protocol
