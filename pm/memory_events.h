// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cede::pm {

// How often the kernel has killed a process of our cgroup for memory (memory.events, "oom_kill"; Linux's
// cgroup-v2.rst). By it a SIGKILL that nobody of us has sent gets a name.
class MemoryEvents {
  public:
    // `cgroups`: /proc/self/cgroup; `root`: where cgroup2 is mounted.
    explicit MemoryEvents(const std::string& cgroups = "/proc/self/cgroup",
                          const std::string& root = "/sys/fs/cgroup");

    // To be called about once a second.
    void tick();
    // Whether there was one since the last call of tick() but one. False where nothing is known.
    [[nodiscard]] bool killed_lately() const;

  private:
    [[nodiscard]] std::optional<std::uint64_t> kills() const;

    std::string path_;
    std::uint64_t last_ = 0;    // at the latest tick
    std::uint64_t before_ = 0;  // at the one before
};

// The number behind "oom_kill" in a file of lines "NAME NUMBER".
[[nodiscard]] std::optional<std::uint64_t> oom_kills_in(std::string_view events);

// Our own cgroup's path from a line "0::/PATH" (cgroups(7)); empty if there is none.
[[nodiscard]] std::string own_cgroup(std::string_view lines);

}  // namespace cede::pm
