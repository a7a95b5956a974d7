// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cede::protocol {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Big-endian integers at a position of a buffer. The caller has checked that they fit.
[[nodiscard]] constexpr std::uint8_t get_u8(Bytes bytes, std::size_t at) noexcept {
    return std::to_integer<std::uint8_t>(bytes.data()[at]);
}
[[nodiscard]] constexpr std::uint16_t get_u16_be(Bytes bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>((get_u8(bytes, at) << 8U) | get_u8(bytes, at + 1));
}
[[nodiscard]] constexpr std::uint32_t get_u32_be(Bytes bytes, std::size_t at) noexcept {
    return (std::uint32_t{get_u16_be(bytes, at)} << 16U) | get_u16_be(bytes, at + 2);
}
constexpr void put_u8(MutableBytes bytes, std::size_t at, std::uint8_t value) noexcept {
    bytes.data()[at] = std::byte{value};
}
constexpr void put_u16_be(MutableBytes bytes, std::size_t at, std::uint16_t value) noexcept {
    put_u8(bytes, at, static_cast<std::uint8_t>(value >> 8U));
    put_u8(bytes, at + 1, static_cast<std::uint8_t>(value & 0xffU));
}
constexpr void put_u32_be(MutableBytes bytes, std::size_t at, std::uint32_t value) noexcept {
    put_u16_be(bytes, at, static_cast<std::uint16_t>(value >> 16U));
    put_u16_be(bytes, at + 2, static_cast<std::uint16_t>(value & 0xffffU));
}

}  // namespace cede::protocol
