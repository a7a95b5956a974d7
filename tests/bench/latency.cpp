// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cede::bench {

std::size_t LatencyHistogram::bucket_of(std::uint64_t value) noexcept {
    constexpr std::uint64_t linear = 1U << sub_bits;
    value = std::min(value, (std::uint64_t{1} << (largest_exponent + 1U)) - 1);
    if (value < linear) {
        return value;
    }
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1U - sub_bits;
    return (std::size_t{shift} << sub_bits) + (value >> shift);
}

std::uint64_t LatencyHistogram::upper_end(std::size_t bucket) noexcept {
    constexpr std::uint64_t linear = 1U << sub_bits;
    if (bucket < linear) {
        return bucket;
    }
    const std::size_t shift = (bucket >> sub_bits) - 1;
    const std::uint64_t mantissa = (bucket & (linear - 1)) + linear;
    return ((mantissa + 1) << shift) - 1;
}

void LatencyHistogram::record(Nanoseconds duration) noexcept {
    duration = std::max<Nanoseconds>(duration, 0);
    ++buckets_[bucket_of(static_cast<std::uint64_t>(duration))];
    ++count_;
    sum_ += static_cast<double>(duration);
    max_ = std::max(max_, duration);
}

double LatencyHistogram::mean() const noexcept {
    return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

Nanoseconds LatencyHistogram::percentile(double share) const noexcept {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < buckets_.size() && count_ > 0; ++bucket) {
        seen += buckets_[bucket];
        if (seen >= wanted && seen > 0) {
            return std::min(static_cast<Nanoseconds>(upper_end(bucket)), max_);
        }
    }
    return max_;
}

}  // namespace cede::bench
