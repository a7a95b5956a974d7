// SPDX-License-Identifier: Apache-2.0
#include "pm/control_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pm/control_path.h"
#include "pm/unix_socket.h"

namespace cede::pm {
namespace {

namespace fs = std::filesystem;
using Done = std::expected<void, std::string>;

constexpr int backlog = 64;
constexpr unsigned owner_only = 0600;

// Nobody else may be able to put something of his into a directory of ours, or to have made it.
Done require_directory(const ControlDirectory& directory) {
    if (!directory.make) {
        return {};
    }
    const char* const path = directory.path.c_str();
    struct stat status {};
    const bool made = ::mkdir(path, *directory.make) == 0;
    if (!made && errno != EEXIST) {
        return std::unexpected{fmt::format("can't make {}: {}", path, std::strerror(errno))};
    }
    // The umask may have taken more than wanted.
    if ((made && ::chmod(path, *directory.make) != 0) || ::lstat(path, &status) != 0) {
        return std::unexpected{fmt::format("{}: {}", path, std::strerror(errno))};
    }
    if (!S_ISDIR(status.st_mode)) {
        return std::unexpected{fmt::format("{} is no directory; remove it", path)};
    }
    if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return std::unexpected{
            fmt::format("{} is not ours alone (owner {}, mode {:04o}); remove it, or make it ours", path,
                        status.st_uid, status.st_mode & 07777U)};
    }
    return {};
}

std::expected<ControlSocket, std::string> open_at(const std::string& path) {
    auto file = listen_on_path(path, {owner_only, {}, {}}, backlog);
    if (!file) {
        return std::unexpected{file.error().message};
    }
    return ControlSocket{std::move(file->fd), path, file->device, file->inode};
}

std::expected<ControlSocket, std::string> open_in(const ControlDirectory& directory,
                                                  const std::string& name) {
    if (auto usable = require_directory(directory); !usable) {
        return std::unexpected{usable.error()};
    }
    std::string problem;
    for (const std::optional<pid_t> pid : {std::optional<pid_t>{}, std::optional{::getpid()}}) {
        const auto path = control_file(directory.path, name, pid);
        auto opened = path ? open_at(*path) : std::unexpected{path.error()};
        if (opened) {
            return opened;
        }
        problem = problem.empty() ? opened.error() : problem;
    }
    return std::unexpected{problem};
}

void add_sockets(std::vector<std::string>& found, const fs::path& directory) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator{directory, ignored}) {
        if (entry.path().extension() == ".sock" && entry.is_socket(ignored)) {
            found.push_back(entry.path().string());
        }
    }
}

// Those with a pid that were killed are nobody's to replace. Who lives keeps his.
void remove_dead(const std::string& ours, const std::string& name) {
    std::vector<std::string> beside;
    add_sockets(beside, fs::path{ours}.parent_path());
    for (const std::string& path : beside) {
        if (path != ours && is_control_file(path, name)) {
            if (const auto dead = open_at(path)) {
                dead->remove_file();
            }
        }
    }
}

}  // namespace

void ControlSocket::remove_file() const noexcept {
    if (!path.empty()) {
        remove_socket(path, device, inode);
    }
}

std::expected<ControlSocket, Error> open_control_socket(const Config& config, std::string_view address,
                                                        const Environment& environment) {
    if (config.control == "none") {
        return ControlSocket{};
    }
    if (!config.control.empty()) {
        auto opened = open_at(config.control);
        if (!opened) {
            return std::unexpected{Error{fmt::format("{}: {}", where(config, "control"), opened.error())}};
        }
        return std::move(*opened);
    }
    const std::string name = control_name(config.title, address, ::getpid());
    std::string problems;
    for (const ControlDirectory& directory : control_directories(environment, ::geteuid())) {
        auto opened = open_in(directory, name);
        if (opened) {
            remove_dead(opened->path, name);
            return std::move(*opened);
        }
        problems += (problems.empty() ? "" : "; ") + opened.error();
    }
    return std::unexpected{
        Error{fmt::format("no control socket, so cede status, reload and the like do not work here: {} "
                          "(--control PATH says where else, --control none that there is to be none)",
                          problems)}};
}

std::expected<void, Error> check_control(const Config& config) {
    if (config.control.empty() || config.control == "none") {
        return {};
    }
    if (const auto path = check_socket_path(config.control); !path) {
        return std::unexpected{Error{fmt::format("{}: {}", where(config, "control"), path.error().message)}};
    }
    return {};
}

std::vector<std::string> find_control_sockets(const Environment& environment, uid_t euid) {
    std::vector<std::string> found;
    std::vector<ControlDirectory> directories = control_directories(environment, euid);
    // A service of its own user has its socket there, too.
    directories.push_back({"/run/cede", {}});
    for (const ControlDirectory& directory : directories) {
        add_sockets(found, directory.path);
        // RuntimeDirectory=cede/%i: one folder for each pool, so that systemd removes no other pool's.
        std::error_code ignored;
        for (const auto& entry : fs::directory_iterator{directory.path, ignored}) {
            if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) {
                add_sockets(found, entry.path());
            }
        }
    }
    std::ranges::sort(found);
    const auto repeated = std::ranges::unique(found);
    found.erase(repeated.begin(), repeated.end());
    return found;
}

}  // namespace cede::pm
