// SPDX-License-Identifier: Apache-2.0
#include "pm/preflight.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <iterator>
#include <linux/capability.h>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "children/spawn.h"
#include "children/unique_fd.h"
#include "pm/address.h"
#include "pm/control_socket.h"
#include "pm/elf.h"
#include "pm/identity.h"
#include "pm/surroundings.h"
#include "pm/unix_socket.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

using Done = std::expected<void, Error>;

std::unexpected<Error> refuse(std::string message) {
    return std::unexpected(Error{std::move(message), Error::failure});
}

// check_command() puts the place in front.
std::unexpected<Error> refuse_command(const std::string& path, std::string_view problem) {
    return refuse(fmt::format("{}: {}", quoted(path), problem));
}

std::string reason(int error) {
    return std::generic_category().message(error);
}

// `line` is the beginning of a file that starts with "#!" (execve(2), "Interpreter scripts").
Done check_script(const std::string& path, std::string_view line) {
    line = line.substr(2, line.find('\n') - 2);
    constexpr std::string_view blanks = " \t\r";
    const std::size_t start = line.find_first_not_of(blanks);
    if (start == std::string_view::npos) {
        return refuse_command(path, "the script's #! line names no interpreter; add one, like #!/bin/sh");
    }
    const std::size_t end = line.find_first_of(blanks, start);
    const std::string interpreter{line.substr(start, end == std::string_view::npos ? end : end - start)};
    if (::faccessat(AT_FDCWD, interpreter.c_str(), X_OK, AT_EACCESS) != 0) {
        return refuse_command(
            path, fmt::format("the script's interpreter {} can not be executed: {}; correct the #! "
                              "line (of its carriage return, too)",
                              quoted(interpreter), reason(errno)));
    }
    return {};
}

Done check_program(const std::string& path, int fd) {
    char beginning[256];
    const ssize_t got = ::pread(fd, beginning, sizeof beginning, 0);
    const std::string_view start{beginning, static_cast<std::size_t>(got > 0 ? got : 0)};
    if (start.starts_with("#!")) {
        return check_script(path, start);
    }
    const auto loader = elf_loader(fd);
    if (!loader) {
        return refuse_command(path, loader.error());
    }
    if (::access(loader->c_str(), X_OK) != 0) {
        return refuse_command(
            path, fmt::format("its loader {} can not be executed: {}; install the C library that this "
                              "program was built for",
                              quoted(*loader), reason(errno)));
    }
    return {};
}

Done check_owners(const Config& config) {
    if (!config.listen_owner.empty()) {
        if (auto user = resolve_user(config.listen_owner, where(config, "listen-owner")); !user) {
            return std::unexpected(user.error());
        }
    }
    if (!config.listen_group.empty()) {
        if (auto group = resolve_group(config.listen_group, where(config, "listen-group")); !group) {
            return std::unexpected(group.error());
        }
    }
    return {};
}

Error located(const Config& config, const std::string& listen, const Error& error) {
    return Error{fmt::format("{}: {}", where(config, "listen", listen), error.message), error.exit_status};
}

// Ends in a circle: cede started under the name lsphp, told to run the lsphp that it has taken the place of.
bool is_cede_itself(const struct stat& status) {
    struct stat self {};
    return ::stat("/proc/self/exe", &self) == 0 && self.st_dev == status.st_dev &&
           self.st_ino == status.st_ino;
}

Done check_file(const std::string& path) {
    if (path.find('/') == std::string::npos) {
        return refuse_command(path,
                              "this is not a path, and PATH is not searched; write it in full, like "
                              "/usr/bin/php-cgi8.2");
    }
    // O_NONBLOCK: opening a named pipe must not wait for a writer.
    const children::UniqueFd place{::open(path.c_str(), O_PATH | O_CLOEXEC)};
    struct stat status {};
    if (!place || ::fstat(place.get(), &status) != 0) {
        return refuse_command(path, reason(errno) + "; check the path, or install the package that has it");
    }
    if (!S_ISREG(status.st_mode)) {
        return refuse_command(path, "this is not a regular file; give the path of a PHP binary");
    }
    if (is_cede_itself(status)) {
        return refuse_command(path, "this is cede itself; give the path of the real PHP binary");
    }
    if (::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
        return refuse_command(
            path, fmt::format("it can not be executed: {}; try: chmod +x {}", reason(errno), path));
    }
    if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) {
        return refuse_command(
            path,
            "it has the set-user-id or set-group-id bit, with which no library can be preloaded "
            "(ld.so(8)); remove the bit, and use --user");
    }
    const children::UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (!file) {
        // Executable but not readable is enough to run it; what it is made of then shows at the start.
        return errno == EACCES ? Done{} : refuse_command(path, reason(errno) + "; check the file system");
    }
    return check_program(path, file.get());
}

// lsphp as root closes its listener at the first request, for it expects to change its user for each one.
Done check_lsphp_user(const Config& config, uid_t euid) {
    const auto identity = resolve_identity(config, euid);
    if (config.protocol == protocol::Protocol::lsapi && identity && identity->uid == 0) {
        return refuse(fmt::format("{}: lsphp can not serve as root; give --user, and leave --allow-root out",
                                  where(config, config.user.empty() ? "allow-root" : "user")));
    }
    return {};
}

// For the place where children are executed, which may be in another root directory.
std::string look_around(const Config& config) {
    std::string objections;
    const std::string& root = config.chroot;
    if (!root.empty() && ::access("/proc/self/fd", X_OK) != 0) {
        objections = fmt::format(
            "{}: there is no /proc in {}, by which the loader reaches cede's agent; mount it before the "
            "start: "
            "mount --bind /proc {}/proc (systemd: BindPaths=/proc:{}/proc)\n",
            where(config, "chroot"), quoted(root), root, root);
    }
    if (!config.command.empty()) {
        const std::string place =
            where(config, "command") + (root.empty() ? "" : fmt::format(" inside {}", quoted(root)));
        if (auto checked = check_command(config.command.front(), place); !checked) {
            objections += checked.error().message + '\n';
        }
    }
    return objections;
}

bool has_capability(unsigned number) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
    // Whoever can not ask does not miss it for certain.
    return ::syscall(SYS_capget, &header, sets) != 0 ||
           (sets[CAP_TO_INDEX(number)].effective & CAP_TO_MASK(number)) != 0;
}

}  // namespace

std::vector<Error> check_start(const Config& config, uid_t euid) {
    if (!config.chroot.empty() && euid != 0) {
        return {
            Error{fmt::format("{}: only root can change the root directory; start cede as root, or leave the "
                              "option out",
                              where(config, "chroot")),
                  Error::failure}};
    }
    children::SpawnRequest request;
    request.surroundings = surroundings_of(config);
    // Nobody else can try it out.
    if (const auto identity = resolve_identity(config, euid); identity && euid == ::geteuid()) {
        take_identity(request, *identity);
    }
    const auto seen = children::rehearse(request, [&config] { return look_around(config); });
    if (!seen) {
        return {Error{explain(seen.error(), config), Error::failure}};
    }
    std::vector<Error> errors;
    for (std::string_view rest = *seen; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1)) {
        errors.push_back(Error{std::string{rest.substr(0, rest.find('\n'))}, Error::failure});
    }
    return errors;
}

std::string check_signalling(const Config& config, uid_t euid) {
    const auto identity = resolve_identity(config, euid);
    if (!identity || !identity->change || identity->uid == euid || has_capability(CAP_KILL)) {
        return {};
    }
    return fmt::format(
        "cede lacks the capability CAP_KILL, so it can not signal children of {}: neither a request timeout "
        "nor "
        "a stop can end a script that runs; give it CAP_KILL (systemd: CapabilityBoundingSet=, containers: "
        "--cap-add), or start cede as {}",
        identity->name, identity->name);
}

Done check_command(const std::string& path, std::string_view place) {
    auto checked = check_file(path);
    if (!checked) {
        checked.error().message.insert(0, fmt::format("{} ", place));
    }
    return checked;
}

Done check_identity(const Config& config, uid_t euid) {
    if (auto identity = resolve_identity(config, euid); !identity) {
        return std::unexpected(identity.error());
    }
    return {};
}

Done check_listen(const Config& config) {
    std::map<std::string, std::string> seen;
    for (const std::string& listen : config.listen) {
        const auto address = parse_address(listen);
        if (!address) {
            return std::unexpected(located(config, listen, address.error()));
        }
        std::string name = address->name();
        if (address->form == Address::Form::unix_path) {
            const auto checked = check_socket_path(address->path);
            if (!checked) {
                return std::unexpected(located(config, listen, checked.error()));
            }
            name = *checked;
        }
        const auto [before, first] = seen.emplace(std::move(name), listen);
        // Port 0 is another port each time.
        if (!first && (address->form == Address::Form::unix_path || address->port != 0)) {
            return refuse(fmt::format("{}: {} is the same address as {} ({}); keep one",
                                      where(config, "listen", listen), quoted(listen), quoted(before->second),
                                      where(config, "listen", before->second)));
        }
    }
    return check_owners(config);
}

std::vector<Error> check_all(const Config& config, uid_t euid) {
    std::vector<Error> errors;
    const auto note = [&errors](Done done) {
        if (!done) {
            errors.push_back(std::move(done.error()));
        }
    };
    note(check_listen(config));
    note(check_control(config));
    note(check_identity(config, euid));
    note(check_lsphp_user(config, euid));
    std::ranges::move(check_start(config, euid), std::back_inserter(errors));
    return errors;
}

}  // namespace cede::pm
