// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cede::protocol {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Integers at a position of a buffer. The caller has checked that they fit.
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
[[nodiscard]] constexpr std::uint16_t get_u16_le(Bytes bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>(get_u8(bytes, at) | (get_u8(bytes, at + 1) << 8U));
}
[[nodiscard]] constexpr std::uint32_t get_u32_le(Bytes bytes, std::size_t at) noexcept {
    return get_u16_le(bytes, at) | (std::uint32_t{get_u16_le(bytes, at + 2)} << 16U);
}
constexpr void put_u16_le(MutableBytes bytes, std::size_t at, std::uint16_t value) noexcept {
    put_u8(bytes, at, static_cast<std::uint8_t>(value & 0xffU));
    put_u8(bytes, at + 1, static_cast<std::uint8_t>(value >> 8U));
}
constexpr void put_u32_le(MutableBytes bytes, std::size_t at, std::uint32_t value) noexcept {
    put_u16_le(bytes, at, static_cast<std::uint16_t>(value & 0xffffU));
    put_u16_le(bytes, at + 2, static_cast<std::uint16_t>(value >> 16U));
}

// The same where the message itself says in which order it comes.
[[nodiscard]] constexpr std::uint16_t get_u16(Bytes bytes, std::size_t at, std::endian order) noexcept {
    return order == std::endian::big ? get_u16_be(bytes, at) : get_u16_le(bytes, at);
}
[[nodiscard]] constexpr std::int32_t get_i32(Bytes bytes, std::size_t at, std::endian order) noexcept {
    return static_cast<std::int32_t>(order == std::endian::big ? get_u32_be(bytes, at)
                                                               : get_u32_le(bytes, at));
}
constexpr void put_u16(MutableBytes bytes, std::size_t at, std::uint16_t value, std::endian order) noexcept {
    order == std::endian::big ? put_u16_be(bytes, at, value) : put_u16_le(bytes, at, value);
}
constexpr void put_i32(MutableBytes bytes, std::size_t at, std::int32_t value, std::endian order) noexcept {
    const auto bits = static_cast<std::uint32_t>(value);
    order == std::endian::big ? put_u32_be(bytes, at, bits) : put_u32_le(bytes, at, bits);
}

// Takes at most `at_most` bytes off the front of the input.
constexpr Bytes take(Bytes& input, std::size_t at_most) noexcept {
    const Bytes taken = input.first(std::min(input.size(), at_most));
    input = input.subspan(taken.size());
    return taken;
}
// Copies from the input into `to` behind its first `filled` bytes, at most up to `wanted` bytes in all.
constexpr void fill(MutableBytes to, std::size_t& filled, std::size_t wanted, Bytes& input) noexcept {
    const Bytes piece = take(input, wanted - filled);
    std::copy(piece.begin(), piece.end(), to.data() + filled);
    filled += piece.size();
}

}  // namespace cede::protocol
