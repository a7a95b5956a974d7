// SPDX-License-Identifier: Apache-2.0
#include "pm/backlog.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "pm/limits.h"

namespace cede::pm {

std::optional<unsigned> fitting_backlog(const BacklogNeeds& needs) noexcept {
    if (!needs.capacity || !(*needs.capacity >= 0)) {
        return std::nullopt;
    }
    const std::chrono::duration<double> patience =
        needs.max_wait.count() > 0 ? needs.max_wait : default_patience;
    const unsigned most =
        std::min(needs.somaxconn.value_or(limits::largest_backlog), limits::largest_backlog);
    const unsigned least = std::min(std::max(needs.children, least_backlog), most);
    const double fitting = std::ceil(*needs.capacity * patience.count());
    return static_cast<unsigned>(std::clamp<double>(fitting, least, most));
}

bool worth_changing(unsigned present, unsigned fitting) noexcept {
    constexpr unsigned tenth = 10;
    const unsigned difference = std::max(present, fitting) - std::min(present, fitting);
    return difference > 0 && std::uint64_t{difference} * tenth >= present;
}

}  // namespace cede::pm
