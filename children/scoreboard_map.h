// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "children/scoreboard.h"
#include "children/unique_fd.h"

namespace cede::children {

// The supervisor's side of the scoreboard: makes the file (memfd_create(2)) and maps it writable.
class ScoreboardMap {
  public:
    // Fails with errno: out of memory or descriptors.
    static std::expected<ScoreboardMap, int> create(std::uint32_t slots);

    // That of another supervisor in the same process, before this one was executed. Fails with errno; EINVAL:
    // it is none of this version.
    static std::expected<ScoreboardMap, int> adopt(UniqueFd fd);

    ScoreboardMap(ScoreboardMap&& other) noexcept;
    ScoreboardMap& operator=(ScoreboardMap&&) = delete;
    ScoreboardMap(const ScoreboardMap&) = delete;
    ScoreboardMap& operator=(const ScoreboardMap&) = delete;
    ~ScoreboardMap();

    [[nodiscard]] Control& control() noexcept { return *static_cast<Control*>(memory_); }
    [[nodiscard]] Slot& slot(std::uint32_t index) noexcept;
    [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    // For a slot without a process only.
    void reset(std::uint32_t index, ChildState state) noexcept;

  private:
    ScoreboardMap(UniqueFd fd, void* memory, std::uint32_t slots) noexcept;

    UniqueFd fd_;
    void* memory_;
    std::uint32_t slots_;
};

}  // namespace cede::children
