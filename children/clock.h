// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <time.h>

namespace cede::children {

// CLOCK_MONOTONIC in nanoseconds: the clock of all times in shared memory and messages (clock_gettime(2)).
[[nodiscard]] inline std::uint64_t monotonic_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace cede::children
