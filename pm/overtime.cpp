// SPDX-License-Identifier: Apache-2.0
#include "pm/overtime.h"

namespace cede::pm {

std::vector<Overtime::Ending> Overtime::check(std::span<const View> slots, Clock::time_point now) {
    using Stage = Request::Stage;
    due_ = now + interval;
    std::vector<Ending> endings;
    requests_.resize(slots.size());
    for (std::uint32_t slot = 0; slot < slots.size(); ++slot) {
        const View& view = slots[slot];
        Request& request = requests_[slot];
        const View& seen = request.child;
        if (!view.busy || !seen.busy || view.pid != seen.pid || view.requests != seen.requests) {
            request = {view, Stage::running, now};
        } else if (request.stage == Stage::running && now - request.since >= limit_) {
            request = {view, Stage::asked, now};
            endings.push_back({slot, How::ask});
        } else if (request.stage == Stage::asked && now - request.since >= patience) {
            request.stage = Stage::forced;
            endings.push_back({slot, How::force});
        }
    }
    return endings;
}

}  // namespace cede::pm
