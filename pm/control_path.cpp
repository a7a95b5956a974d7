// SPDX-License-Identifier: Apache-2.0
#include "pm/control_path.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sys/un.h>

#include <fmt/format.h>

namespace cede::pm {
namespace {

constexpr std::size_t longest_path = sizeof(sockaddr_un::sun_path) - 1;
constexpr std::string_view ending = ".sock";
constexpr std::size_t room_for_pid = 11;  // "." and ten digits
constexpr std::size_t hash_digits = 8;
constexpr std::size_t longest_name = 64;

std::string value_of(const Environment& environment, std::string_view name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string{} : found->second;
}

bool is_plain(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

std::string made_safe(std::string_view text) {
    std::string safe{text};
    std::ranges::replace_if(
        safe, [](char c) { return !is_plain(c); }, '_');
    if (safe.starts_with('.')) {
        safe.front() = '_';
    }
    return safe;
}

// FNV-1a. Not std::hash: the program that asks may be another build than the one that answers.
std::uint32_t hash_of(std::string_view text) noexcept {
    std::uint32_t hash = 2166136261U;
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
    return hash;
}

std::string cut_to(std::string_view name, std::size_t size) {
    if (name.size() <= size) {
        return std::string{name};
    }
    return fmt::format("{}-{:08x}", name.substr(0, size - hash_digits - 1), hash_of(name));
}

}  // namespace

std::vector<ControlDirectory> control_directories(const Environment& environment, uid_t euid) {
    constexpr mode_t for_all_to_see = 0755;
    constexpr mode_t ours_alone = 0700;
    std::vector<ControlDirectory> directories;
    const std::string given = value_of(environment, "RUNTIME_DIRECTORY");
    if (given.starts_with('/')) {
        directories.push_back({given.substr(0, given.find(':')), {}});
    }
    if (euid == 0) {
        directories.push_back({"/run/cede", for_all_to_see});
        return directories;
    }
    if (const std::string own = value_of(environment, "XDG_RUNTIME_DIR"); own.starts_with('/')) {
        directories.push_back({own + "/cede", ours_alone});
    }
    directories.push_back({fmt::format("/tmp/cede-{}", euid), ours_alone});
    return directories;
}

std::string control_name(std::string_view title, std::string_view address, pid_t pid) {
    std::string name;
    if (!title.empty()) {
        name = made_safe(title);
    } else if (address.starts_with('/')) {
        const std::string_view path =
            address.substr(std::min(address.find_first_not_of('/'), address.size()));
        name = made_safe(path.ends_with(ending) ? path.substr(0, path.size() - ending.size()) : path);
    } else if (address.starts_with("*:")) {
        name = "any_" + made_safe(address.substr(2));
    } else if (!address.empty() && !address.starts_with('(') && !address.starts_with("unix:(")) {
        std::string bare{address};
        std::erase_if(bare, [](char c) { return c == '[' || c == ']'; });
        name = made_safe(bare);
    }
    if (name.empty()) {
        name = fmt::format("pid-{}", pid);
    }
    return cut_to(name, longest_name);
}

std::expected<std::string, std::string> control_file(const std::string& directory, std::string_view name,
                                                     std::optional<pid_t> pid) {
    const std::string in = directory.ends_with('/') ? directory : directory + '/';
    const std::size_t fixed = in.size() + ending.size() + room_for_pid;
    constexpr std::size_t shortest_name = hash_digits + 2;
    if (fixed + shortest_name > longest_path) {
        return std::unexpected{fmt::format("{}: the path is too long for a socket in it ({} bytes of {})",
                                           directory, fixed + shortest_name, longest_path)};
    }
    // The room for a pid is left in both forms, so that both begin alike.
    const std::string stem = cut_to(name, longest_path - fixed);
    return pid ? fmt::format("{}{}.{}{}", in, stem, *pid, ending) : fmt::format("{}{}{}", in, stem, ending);
}

bool is_control_file(std::string_view file, std::string_view name) {
    const std::size_t slash = file.rfind('/');
    const std::string directory{file.substr(0, slash == std::string_view::npos ? 0 : slash + 1)};
    const auto plain = control_file(directory, name);
    if (!plain) {
        return false;
    }
    const std::string_view stem = std::string_view{*plain}.substr(0, plain->size() - ending.size());
    if (!file.starts_with(stem) || !file.ends_with(ending) || file.size() < plain->size()) {
        return false;
    }
    std::string_view between = file.substr(stem.size(), file.size() - plain->size());
    if (between.empty()) {
        return true;
    }
    const bool dotted = between.front() == '.';
    between.remove_prefix(1);
    return dotted && !between.empty() &&
           std::ranges::all_of(between, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace cede::pm
