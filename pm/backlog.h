// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace cede::pm {

// `--backlog auto`: how many may stand in a listen queue so that who is last there is served in time. Pure.
struct BacklogNeeds {
    std::optional<double> capacity;         // requests a second that the pool can serve; none: not known
    std::chrono::milliseconds max_wait{0};  // 0: no limit, and default_patience counts
    unsigned children = 0;
    std::optional<unsigned> somaxconn;  // net.core.somaxconn; none: not known
};

inline constexpr std::chrono::milliseconds default_patience{1000};
inline constexpr unsigned least_backlog = 16;

// By Little's law capacity x max_wait, but no less than there are children, or least_backlog, and no more
// than the kernel grants, where that is known. Nothing without a capacity.
[[nodiscard]] std::optional<unsigned> fitting_backlog(const BacklogNeeds& needs) noexcept;

// Whether the difference is worth it: a tenth of the present one.
[[nodiscard]] bool worth_changing(unsigned present, unsigned fitting) noexcept;

}  // namespace cede::pm
