// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "children/unique_fd.h"

namespace cede::pm {

// A descriptor that becomes readable when `parent`, the calling process's parent, ends (pidfd_open(2)). Empty
// if there is nobody to watch: the parent is process 1, outside of our pid namespace, or has ended already.
[[nodiscard]] children::UniqueFd parent_handle(pid_t parent) noexcept;

}  // namespace cede::pm
