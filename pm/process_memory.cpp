// SPDX-License-Identifier: Apache-2.0
#include "pm/process_memory.h"

#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "children/unique_fd.h"

namespace cede::pm {

std::uint64_t resident_bytes(pid_t pid) noexcept {
    char text[128];
    std::snprintf(text, sizeof text, "/proc/%d/statm", static_cast<int>(pid));
    const children::UniqueFd file{::open(text, O_RDONLY | O_CLOEXEC)};
    const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : 0;
    if (size <= 0) {
        return 0;
    }
    text[size] = '\0';
    unsigned long total = 0;
    unsigned long resident = 0;
    if (std::sscanf(text, "%lu %lu", &total, &resident) != 2) {
        return 0;
    }
    return std::uint64_t{resident} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace cede::pm
