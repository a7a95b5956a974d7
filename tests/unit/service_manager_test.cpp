// SPDX-License-Identifier: Apache-2.0
#include "pm/service_manager.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/support/temp_directory.h"

using cede::children::UniqueFd;
using cede::pm::Environment;
using cede::pm::ServiceManager;

namespace {

constexpr pid_t self = 4711;

// The other end of $NOTIFY_SOCKET.
class Manager {
  public:
    explicit Manager(std::string name) : name_{std::move(name)} {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, name_.data(), name_.size());
        if (name_.front() == '@') {
            address.sun_path[0] = '\0';
        }
        const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
        REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
    }

    Environment environment() const { return {{"NOTIFY_SOCKET", name_}}; }

    // Empty: nothing has come.
    std::string heard() {
        char buffer[512];
        const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
        return got > 0 ? std::string{buffer, static_cast<std::size_t>(got)} : std::string{};
    }

  private:
    std::string name_;
    UniqueFd fd_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

}  // namespace

TEST_CASE("the service manager hears each step") {
    const cede::tests::TempDirectory directory;
    for (const std::string& name : {directory.path("notify"), std::string{"@cede-service-manager-test"}}) {
        CAPTURE(name);
        Manager manager{name};
        ServiceManager told{manager.environment(), self, {}};
        told.ready("4 children");
        CHECK(manager.heard() == "READY=1\nSTATUS=4 children");
        told.reloading();
        CHECK(manager.heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        told.status("busy");
        CHECK(manager.heard() == "STATUS=busy");
        told.stopping();
        CHECK(manager.heard().starts_with("STOPPING=1\n"));
        CHECK(manager.heard() == "");
    }
}

TEST_CASE("a watchdog is fed twice in its time, if it is ours") {
    const cede::tests::TempDirectory directory;
    Manager manager{directory.path("notify")};
    for (const auto& [pid, ours] : {std::pair{std::string{"4711"}, true}, {"", true}, {"4712", false}}) {
        CAPTURE(pid);
        Environment environment = manager.environment();
        environment["WATCHDOG_USEC"] = "2000000";
        if (!pid.empty()) {
            environment["WATCHDOG_PID"] = pid;
        }
        ServiceManager told{environment, self, {}};
        if (!ours) {
            CHECK(told.due() == ServiceManager::Clock::time_point::max());
            continue;
        }
        const auto first = told.due();
        told.tend(first);
        CHECK(manager.heard() == "WATCHDOG=1");
        CHECK(told.due() - first == std::chrono::seconds{1});
        told.tend(first);
        CHECK(manager.heard() == "");
    }
}

TEST_CASE("nobody listens: nothing happens") {
    for (const char* const socket : {"", "relative", "/no/such/socket", "vsock:1:2"}) {
        Environment environment{{"NOTIFY_SOCKET", socket}, {"WATCHDOG_USEC", "soon"}};
        ServiceManager told{environment, self, {}};
        told.ready("");
        told.stopping();
        CHECK(told.due() == ServiceManager::Clock::time_point::max());
    }
    ServiceManager{{}, self, {}}.ready("");
    const std::string too_long(200, 'x');
    CHECK(!ServiceManager{{{"NOTIFY_SOCKET", "/" + too_long}}, self, {}}.listens());
}

TEST_CASE("the descriptor of --ready-fd gets one line feed and its end") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd reader{ends[0]};
    ServiceManager told{{}, self, ends[1]};
    told.ready("");
    told.ready("");
    char bytes[4];
    CHECK(::read(reader.get(), bytes, sizeof bytes) == 1);
    CHECK(bytes[0] == '\n');
    CHECK(::read(reader.get(), bytes, sizeof bytes) == 0);
}
