// SPDX-License-Identifier: Apache-2.0
#include "pm/memory_events.h"

#include <charconv>
#include <fstream>
#include <iterator>

namespace cede::pm {
namespace {

std::string content_of(const std::string& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

// The rest of the first line that starts like this.
std::optional<std::string_view> behind(std::string_view start, std::string_view text) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with(start)) {
            return line.substr(start.size());
        }
        text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    }
    return std::nullopt;
}

}  // namespace

MemoryEvents::MemoryEvents(const std::string& cgroups, const std::string& root) {
    const std::string own = own_cgroup(content_of(cgroups));
    if (!own.empty()) {
        path_ = root + (own == "/" ? "" : own) + "/memory.events";
        before_ = last_ = kills().value_or(0);
    }
}

void MemoryEvents::tick() {
    before_ = last_;
    last_ = kills().value_or(last_);
}

bool MemoryEvents::killed_lately() const {
    return kills().value_or(before_) > before_;
}

std::optional<std::uint64_t> MemoryEvents::kills() const {
    return path_.empty() ? std::nullopt : oom_kills_in(content_of(path_));
}

std::optional<std::uint64_t> oom_kills_in(std::string_view events) {
    const auto digits = behind("oom_kill ", events);
    std::uint64_t number = 0;
    if (!digits ||
        std::from_chars(digits->data(), digits->data() + digits->size(), number).ec != std::errc{}) {
        return std::nullopt;
    }
    return number;
}

std::string own_cgroup(std::string_view lines) {
    return std::string{behind("0::", lines).value_or("")};
}

}  // namespace cede::pm
