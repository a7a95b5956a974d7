// SPDX-License-Identifier: Apache-2.0
#include "pm/refusals.h"

#include <fmt/format.h>

namespace cede::pm {

std::string Refusals::report(Clock::time_point now, std::string_view child, protocol::Outcome why,
                             protocol::Protocol spoken, protocol::Protocol ours, std::uint64_t total) {
    if (now < next_line_) {
        return {};
    }
    next_line_ = now + std::chrono::seconds{1};
    // A child that has ended took its counter along.
    const std::uint64_t fresh = total > told_ ? total - told_ : 1;
    told_ = total;
    const std::string others = fresh > 1 ? fmt::format(" ({} since the last such line)", fresh) : "";
    if (spoken != protocol::Protocol::unknown && spoken != ours) {
        return fmt::format(
            "{} refused a request: the web server speaks {}, these children {}; correct its configuration, "
            "or "
            "the command{}",
            child, protocol::name_of(spoken), protocol::name_of(ours), others);
    }
    return fmt::format("{} refused a request and closed its connection: {}{}", child, protocol::describe(why),
                       others);
}

}  // namespace cede::pm
