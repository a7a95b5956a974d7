// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "children/unique_fd.h"
#include "pm/child_output.h"
#include "pm/config.h"
#include "pm/log.h"
#include "pm/poller.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_directory.h"

namespace cede::tests {

constexpr pm::ChildOutput::Owner child(std::uint32_t slot) {
    return {pm::ChildOutput::Owner::Kind::child, slot};
}

// The supervisor's loop, as far as output is concerned.
struct OutputDesk {
    pm::Config config;
    pm::Poller poller;
    pm::ChildOutput output{poller};

    explicit OutputDesk(pm::Config chosen = {}) : config{std::move(chosen)} {}

    // Whether there was anything to read, or is left for the next turn.
    bool turn(pm::ChildOutput::Clock::time_point now = pm::ChildOutput::Clock::now()) {
        const auto events = poller.poll();
        for (const pm::Poller::Event& event : events) {
            output.on_event(event);
        }
        output.settle(now);
        return !events.empty() || output.due() == pm::ChildOutput::Clock::time_point{};
    }
    void turn_until_quiet() {
        while (turn()) {
        }
    }
    children::UniqueFd start(std::uint32_t slot, const std::string& author) {
        children::UniqueFd end = open(slot);
        output.begin(child(slot), author);
        return end;
    }
    children::UniqueFd open(std::uint32_t slot) { return std::move(*output.open(child(slot), config, {})); }
};

inline void say(const children::UniqueFd& end, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(end.get(), text.data(), text.size());
        if (written <= 0) {
            throw std::runtime_error{"write"};
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

inline std::string content_of_log(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

// The lines, without their times, of a process that has this file as its log. `action` may return what went
// wrong.
template <typename Action>
std::vector<std::string> logged_by(Action action) {
    const TempDirectory folder;
    const std::string path = folder.path("cede.log");
    const std::string outcome = in_child([&]() -> std::string {
        std::signal(SIGPIPE, SIG_IGN);
        pm::Config config;
        config.log = path;
        if (!pm::open_log(config)) {
            return "not opened";
        }
        pm::set_log_level(pm::LogLevel::error);
        return action(path);
    });
    CHECK(outcome == "");
    std::istringstream text{content_of_log(path)};
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line.substr(line.find("cede: ") + 6));
    }
    return lines;
}

}  // namespace cede::tests
