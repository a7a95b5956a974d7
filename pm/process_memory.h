// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace cede::pm {

// Resident memory of a process in bytes (proc(5), statm), what it shares with others included. 0: not known,
// because it has ended or there is no /proc.
[[nodiscard]] std::uint64_t resident_bytes(pid_t pid) noexcept;

}  // namespace cede::pm
