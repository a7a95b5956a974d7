// SPDX-License-Identifier: Apache-2.0
#include "pm/service_manager.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <limits>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "children/clock.h"
#include "pm/config_value.h"

namespace cede::pm {
namespace {

std::string value_of(const Environment& environment, std::string_view name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string{} : found->second;
}

// Twice as often as we must.
std::optional<std::chrono::microseconds> watchdog_interval(const Environment& environment, pid_t self) {
    const std::string pid = value_of(environment, "WATCHDOG_PID");
    if (!pid.empty() && pid != std::to_string(self)) {
        return std::nullopt;
    }
    const auto microseconds =
        parse_number(value_of(environment, "WATCHDOG_USEC"), 2, std::numeric_limits<unsigned>::max());
    if (!microseconds) {
        return std::nullopt;
    }
    return std::chrono::microseconds{*microseconds / 2};
}

}  // namespace

ServiceManager::ServiceManager(const Environment& environment, pid_t self, std::optional<int> ready_fd)
    : socket_{value_of(environment, "NOTIFY_SOCKET")}, ready_{ready_fd.value_or(-1)} {
    if (ready_) {
        fcntl(ready_.get(), F_SETFD, FD_CLOEXEC);
    }
    constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
    if (socket_.size() > longest || (!socket_.starts_with('/') && !socket_.starts_with('@'))) {
        socket_.clear();
    }
    if (const auto interval = watchdog_interval(environment, self); interval && listens()) {
        interval_ = *interval;
        due_ = Clock::now();
    }
}

void ServiceManager::ready(std::string_view status) noexcept {
    try {
        tell(fmt::format("READY=1\nSTATUS={}", status));
    } catch (const std::exception&) {
        tell("READY=1");
    }
    if (ready_) {
        (void)!::write(ready_.get(), "\n", 1);
        ready_.reset();
    }
}

void ServiceManager::reloading() noexcept {
    try {
        tell(
            fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reloading", children::monotonic_ns() / 1000));
    } catch (const std::exception&) {
        tell("RELOADING=1");
    }
}

void ServiceManager::stopping() noexcept {
    tell("STOPPING=1\nSTATUS=stopping");
}

void ServiceManager::status(std::string_view status) noexcept {
    try {
        tell(fmt::format("STATUS={}", status));
    } catch (const std::exception&) {
        return;  // the next one will do
    }
}

void ServiceManager::tend(Clock::time_point now) noexcept {
    if (now >= due_) {
        due_ = now + interval_;
        tell("WATCHDOG=1");
    }
}

void ServiceManager::tell(std::string_view message) noexcept {
    if (!listens()) {
        return;
    }
    const children::UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    if (socket_.starts_with('@')) {
        address.sun_path[0] = '\0';
    }
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    (void)::sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace cede::pm
