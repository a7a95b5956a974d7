// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/bench/clock.h"

namespace cede::bench {

// Counts durations in buckets that are at most 0.8 % wide (128 to a power of two), from 1 ns to two days.
// Recording allocates nothing. Mean, minimum and maximum are exact.
class LatencyHistogram {
  public:
    void record(Nanoseconds duration) noexcept;

    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] Nanoseconds max() const noexcept { return max_; }
    [[nodiscard]] double mean() const noexcept;
    // The duration that `share` (0 to 1) of all recorded ones do not exceed; 0 when nothing was recorded.
    [[nodiscard]] Nanoseconds percentile(double share) const noexcept;

  private:
    static constexpr unsigned sub_bits = 7;
    static constexpr unsigned largest_exponent = 47;
    static constexpr std::size_t bucket_count = (largest_exponent - sub_bits + 2) << sub_bits;

    [[nodiscard]] static std::size_t bucket_of(std::uint64_t value) noexcept;
    [[nodiscard]] static std::uint64_t upper_end(std::size_t bucket) noexcept;

    std::array<std::uint64_t, bucket_count> buckets_{};
    std::uint64_t count_ = 0;
    double sum_ = 0;
    Nanoseconds max_ = 0;
};

}  // namespace cede::bench
