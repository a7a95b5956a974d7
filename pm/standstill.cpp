// SPDX-License-Identifier: Apache-2.0
#include "pm/standstill.h"

namespace cede::pm {

bool Standstill::check(const View& view, Clock::duration limit, Clock::time_point now) noexcept {
    const bool alive = !view.waiting || !view.all_busy || view.requests != requests_;
    requests_ = view.requests;
    if (alive || since_ == Clock::time_point{}) {
        since_ = now;
        return false;
    }
    if (limit <= Clock::duration::zero() || now - since_ < limit) {
        return false;
    }
    since_ = now;
    return true;
}

}  // namespace cede::pm
