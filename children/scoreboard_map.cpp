// SPDX-License-Identifier: Apache-2.0
#include "children/scoreboard_map.h"

#include <cerrno>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cede::children {

std::expected<ScoreboardMap, int> ScoreboardMap::create(std::uint32_t slots) {
    const std::size_t size = scoreboard_size(slots);
    UniqueFd fd{memfd_create("cede-scoreboard", MFD_CLOEXEC)};
    if (!fd || ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
        return std::unexpected{errno};
    }
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) {
        return std::unexpected{errno};
    }
    // Slots are all zero, which is what a new Slot would be; leaving them untouched costs no memory.
    static_assert(static_cast<std::uint32_t>(ChildState::empty) == 0);
    auto* const control = new (memory) Control;
    control->slot_count = slots;
    return ScoreboardMap{std::move(fd), memory, slots};
}

std::expected<ScoreboardMap, int> ScoreboardMap::adopt(UniqueFd fd) {
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) {
        return std::unexpected{errno};
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size < 2 * page_size || size % page_size != 0) {
        return std::unexpected{EINVAL};
    }
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) {
        return std::unexpected{errno};
    }
    const auto slots = static_cast<std::uint32_t>(size / page_size - 1);
    ScoreboardMap map{std::move(fd), memory, slots};
    const Control& control = map.control();
    if (control.magic != scoreboard_magic || control.version != scoreboard_version ||
        control.slot_count != slots) {
        return std::unexpected{EINVAL};
    }
    return map;
}

ScoreboardMap::ScoreboardMap(UniqueFd fd, void* memory, std::uint32_t slots) noexcept
    : fd_{std::move(fd)}, memory_{memory}, slots_{slots} {}

ScoreboardMap::ScoreboardMap(ScoreboardMap&& other) noexcept
    : fd_{std::move(other.fd_)}, memory_{std::exchange(other.memory_, nullptr)}, slots_{other.slots_} {}

ScoreboardMap::~ScoreboardMap() {
    if (memory_ != nullptr) {
        munmap(memory_, scoreboard_size(slots_));
    }
}

Slot& ScoreboardMap::slot(std::uint32_t index) noexcept {
    return reinterpret_cast<Slot*>(static_cast<std::byte*>(memory_) + page_size)[index];
}

void ScoreboardMap::reset(std::uint32_t index, ChildState state) noexcept {
    Slot& cleared = slot(index);
    std::construct_at(&cleared);
    cleared.state.store(state);
}

}  // namespace cede::children
