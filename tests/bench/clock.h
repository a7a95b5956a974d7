// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>

namespace cede::bench {

// Nanoseconds: a duration, or a moment of CLOCK_MONOTONIC.
using Nanoseconds = std::int64_t;

inline constexpr Nanoseconds millisecond = 1'000'000;
inline constexpr Nanoseconds second = 1'000'000'000;

[[nodiscard]] inline Nanoseconds now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return Nanoseconds{time.tv_sec} * second + time.tv_nsec;
}

[[nodiscard]] constexpr Nanoseconds from_seconds(double seconds) noexcept {
    return static_cast<Nanoseconds>(seconds * 1e9);
}

}  // namespace cede::bench
