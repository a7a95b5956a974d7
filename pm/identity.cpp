// SPDX-License-Identifier: Apache-2.0
#include "pm/identity.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <grp.h>
#include <limits>
#include <optional>
#include <pwd.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "pm/words.h"

namespace cede::pm {
namespace {

struct User {
    uid_t uid = 0;
    std::optional<gid_t> gid;  // none: the number stands in no user database
    std::string name;
};

std::unexpected<Error> refuse(std::string message) {
    return std::unexpected(Error{std::move(message), Error::failure});
}

// -1 means "leave it" to chown(2) and setresuid(2), so it is nobody's number.
std::optional<unsigned> numeric_id(std::string_view text) {
    unsigned id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    const bool whole = error == std::errc{} && end == text.data() + text.size() && !text.empty();
    return whole && id != std::numeric_limits<unsigned>::max() ? std::optional{id} : std::nullopt;
}

// Calls a get..._r function with a buffer that grows as it asks for (getpwnam_r(3): ERANGE). The result,
// which points into `buffer`, or null; errno-like `error` is 0 when there is just no such entry.
template <typename Entry, typename Ask>
Entry* look_up(Entry& entry, std::vector<char>& buffer, int& error, Ask ask) {
    constexpr std::size_t largest = 1024 * 1024;
    Entry* found = nullptr;
    for (buffer.resize(4096);; buffer.resize(buffer.size() * 2)) {
        error = ask(&entry, buffer.data(), buffer.size(), &found);
        if (error == EINTR) {
            continue;
        }
        if (error != ERANGE || buffer.size() >= largest) {
            break;
        }
    }
    // getpwnam_r(3) lists these as further ways to say "not found".
    if (error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) {
        error = 0;
    }
    return error == 0 ? found : nullptr;
}

std::string missing(std::string_view what, std::string_view name, int error) {
    if (error != 0) {
        return fmt::format("{} {} could not be looked up: {}; check /etc/nsswitch.conf, or give the number",
                           what, quoted(name), std::generic_category().message(error));
    }
    return fmt::format("there is no {} {}; create it, or give the name or number of another", what,
                       quoted(name));
}

std::expected<User, Error> find_user(std::string_view text, std::string_view place) {
    const std::string name{text};
    const auto number = numeric_id(text);
    passwd entry{};
    std::vector<char> buffer;
    int error = 0;
    // POSIX, chown(1): a name made of digits is a name if there is such a user.
    passwd* found =
        look_up(entry, buffer, error, [&](auto... rest) { return ::getpwnam_r(name.c_str(), rest...); });
    if (found == nullptr && number) {
        found = look_up(entry, buffer, error, [&](auto... rest) { return ::getpwuid_r(*number, rest...); });
    }
    if (found != nullptr) {
        return User{found->pw_uid, found->pw_gid, found->pw_name};
    }
    if (number) {
        return User{*number, std::nullopt, name};
    }
    return refuse(fmt::format("{}: {}", place, missing("user", text, error)));
}

std::string user_name(uid_t uid) {
    const auto user = find_user(std::to_string(uid), "");
    return user ? user->name : std::to_string(uid);
}

std::vector<gid_t> groups_of(const User& user, gid_t gid) {
    int count = 64;
    std::vector<gid_t> groups(static_cast<std::size_t>(count));
    // getgrouplist(3): a -1 leaves the number needed in count.
    while (::getgrouplist(user.name.c_str(), gid, groups.data(), &count) < 0 && count > 0 && count <= 65536) {
        groups.resize(static_cast<std::size_t>(count));
    }
    groups.resize(static_cast<std::size_t>(std::clamp(count, 0, static_cast<int>(groups.size()))));
    return groups;
}

std::vector<gid_t> own_groups() {
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<std::size_t>(std::max(0, count)));
    return groups;
}

// Only root can become somebody else, so here --user and --group may only confirm what already is.
std::expected<Identity, Error> resolve_unprivileged(const Config& config, uid_t euid) {
    if (!config.user.empty()) {
        const auto user = find_user(config.user, where(config, "user"));
        if (!user) {
            return std::unexpected(user.error());
        }
        if (user->uid != euid) {
            return refuse(fmt::format(
                "{}: only root can start children as {}, and cede runs as {}; start it as root or "
                "as {}, or leave the option out",
                where(config, "user"), user->name, user_name(euid), user->name));
        }
    }
    const gid_t gid = ::getegid();
    if (!config.group.empty()) {
        const auto group = resolve_group(config.group, where(config, "group"));
        if (!group) {
            return std::unexpected(group.error());
        }
        if (*group != gid) {
            return refuse(
                fmt::format("{}: only root can start children in group {}, and cede runs in group {}; start "
                            "it as root or with that group, or leave the option out",
                            where(config, "group"), quoted(config.group), gid));
        }
    }
    return Identity{euid, gid, own_groups(), user_name(euid), false};
}

std::expected<Identity, Error> resolve_root(const Config& config) {
    if (config.user.empty() && !config.allow_root) {
        return refuse(
            "--user: cede was started by root, and the children would run as root; give --user www-data (or "
            "another "
            "user), or --allow-root if root is what you want");
    }
    const std::string_view user_text = config.user.empty() ? std::string_view{"0"} : config.user;
    const auto user = find_user(user_text, where(config, "user"));
    if (!user) {
        return std::unexpected(user.error());
    }
    if (user->uid == 0 && !config.allow_root) {
        return refuse(fmt::format("{}: {} is root; give another user, like www-data, or --allow-root as well",
                                  where(config, "user"), quoted(config.user)));
    }
    std::optional<gid_t> gid = user->gid;
    if (!config.group.empty()) {
        const auto group = resolve_group(config.group, where(config, "group"));
        if (!group) {
            return std::unexpected(group.error());
        }
        gid = *group;
    }
    if (!gid) {
        return refuse(
            fmt::format("{}: user {} is not in the user database, so its group is unknown; give --group, too",
                        where(config, "user"), quoted(config.user)));
    }
    if (config.user.empty() && config.group.empty()) {
        return Identity{0, ::getegid(), own_groups(), user->name, false};
    }
    return Identity{user->uid, *gid, user->gid ? groups_of(*user, *gid) : std::vector{*gid}, user->name,
                    true};
}

}  // namespace

std::expected<Identity, Error> resolve_identity(const Config& config, uid_t euid) {
    return euid == 0 ? resolve_root(config) : resolve_unprivileged(config, euid);
}

void take_identity(children::SpawnRequest& request, const Identity& identity) {
    request.change_identity = identity.change;
    request.uid = identity.uid;
    request.gid = identity.gid;
    request.supplementary = identity.supplementary;
}

std::expected<uid_t, Error> resolve_user(std::string_view name_or_number, std::string_view place) {
    const auto user = find_user(name_or_number, place);
    if (!user) {
        return std::unexpected(user.error());
    }
    return user->uid;
}

std::expected<gid_t, Error> resolve_group(std::string_view name_or_number, std::string_view place) {
    const std::string name{name_or_number};
    group entry{};
    std::vector<char> buffer;
    int error = 0;
    const group* found =
        look_up(entry, buffer, error, [&](auto... rest) { return ::getgrnam_r(name.c_str(), rest...); });
    if (found != nullptr) {
        return found->gr_gid;
    }
    if (const auto number = numeric_id(name_or_number)) {
        return *number;
    }
    return refuse(fmt::format("{}: {}", place, missing("group", name_or_number, error)));
}

}  // namespace cede::pm
