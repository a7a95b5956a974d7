// SPDX-License-Identifier: Apache-2.0
#include "pm/parent_process.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace cede::pm {

children::UniqueFd parent_handle(pid_t parent) noexcept {
    constexpr pid_t init = 1;  // takes orphans, and never ends before us
    if (parent <= init) {
        return {};
    }
    children::UniqueFd handle{static_cast<int>(::syscall(SYS_pidfd_open, parent, 0U))};
    // Had it ended before, the number might be somebody else's by now; but then we have another parent.
    if (::getppid() != parent) {
        return {};
    }
    return handle;
}

}  // namespace cede::pm
