// SPDX-License-Identifier: Apache-2.0
#include "pm/child_exec.h"

#include <algorithm>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "children/zygote_protocol.h"

namespace cede::pm {

std::expected<pid_t, children::SpawnError> execute_child(children::SpawnRequest request, std::uint32_t slot,
                                                         int channel, int output) {
    const std::string name = fmt::format("{}=", children::agent_variable);
    for (std::string& entry : request.environment) {
        if (entry.starts_with(name)) {
            entry += fmt::format(" {}", slot);
        }
    }
    request.inherited_fds.front() = channel;
    if (output >= 0) {
        request.output_fd = output;
    }
    return children::spawn(request);
}

unsigned most_executed_at_once() noexcept {
    return std::max(2U, std::thread::hardware_concurrency());
}

}  // namespace cede::pm
