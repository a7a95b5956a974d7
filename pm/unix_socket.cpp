// SPDX-License-Identifier: Apache-2.0
#include "pm/unix_socket.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string_view>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

namespace cede::pm {
namespace {

using children::UniqueFd;
using Done = std::expected<void, Error>;

// How long another start may hold the directory's lock. It is held for a handful of system calls.
constexpr std::chrono::seconds lock_patience{2};
constexpr std::chrono::milliseconds lock_pause{5};

std::unexpected<Error> refuse(const std::string& path, std::string_view problem) {
    return std::unexpected(Error{fmt::format("{}: {}", path, problem), Error::failure});
}

std::string reason(int error) {
    return std::generic_category().message(error);
}

std::string directory_of(const std::string& path) {
    return path.substr(0, std::max<std::size_t>(1, path.rfind('/')));
}

std::string base_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

sockaddr_un socket_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    return address;
}

Error directory_error(const std::string& path, int error) {
    const std::string directory = directory_of(path);
    if (error == ENOENT) {
        return Error{fmt::format("{}: there is no directory {}; create it (systemd: RuntimeDirectory=)", path,
                                 directory),
                     Error::failure};
    }
    if (error == ENOTDIR) {
        return Error{fmt::format("{}: {} is not a directory; choose another path", path, directory),
                     Error::failure};
    }
    return Error{fmt::format("{}: directory {}: {}; let the user that cede starts as read and write it", path,
                             directory, reason(error)),
                 Error::failure};
}

// The lock that makes "is it stale? then replace it" one step among all processes that do it this way. It is
// on the directory itself, for a lock file would have to stay behind for ever: removing it would reopen the
// race. A live instance needs no lock to be recognised, it answers; so the lock is held only while an address
// is taken or removed.
std::expected<UniqueFd, Error> lock_directory(const std::string& path) {
    UniqueFd directory{::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!directory) {
        return std::unexpected(directory_error(path, errno));
    }
    const auto deadline = std::chrono::steady_clock::now() + lock_patience;
    while (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EWOULDBLOCK) {
            return refuse(
                path, fmt::format("directory {} can not be locked: {}; choose one on a local file system, "
                                  "like /run",
                                  directory_of(path), reason(errno)));
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            return refuse(path,
                          fmt::format("another process has locked directory {}; see which with: fuser -v {}",
                                      directory_of(path), directory_of(path)));
        }
        std::this_thread::sleep_for(lock_pause);
    }
    return directory;
}

Done refuse_foreign(const std::string& path, mode_t mode) {
    if (S_ISSOCK(mode)) {
        return {};
    }
    const std::string_view what = S_ISDIR(mode)   ? "a directory"
                                  : S_ISLNK(mode) ? "a symbolic link"
                                  : S_ISREG(mode) ? "a regular file"
                                                  : "a special file";
    return refuse(
        path,
        fmt::format("there is {} at this path, and no socket; it was left alone: choose another path, or "
                    "remove it yourself",
                    what));
}

// Whether the socket file at `path` is stale. An error if it is not, or if that can not be known.
Done require_stale(const std::string& path) {
    const UniqueFd probe{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!probe) {
        return refuse(path,
                      fmt::format("no socket to be had: {}; raise the limit on open files", reason(errno)));
    }
    const sockaddr_un address = socket_address(path);
    const int result = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const int error = result == 0 ? 0 : errno;
    // unix(7), connect(2): ECONNREFUSED is nobody there; EAGAIN is somebody there with a full queue.
    if (error == ECONNREFUSED || error == ENOENT) {
        return {};
    }
    if (error == 0 || error == EAGAIN || error == EINPROGRESS) {
        ucred peer{};
        socklen_t length = sizeof peer;
        const bool known =
            error == 0 && ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
        const std::string holder =
            known && peer.pid > 0 ? fmt::format("process {}", peer.pid) : "another process";
        return refuse(
            path,
            fmt::format("{} already serves this socket; it was left alone: stop that one (ss -xlp shows "
                        "it), or choose another path",
                        holder));
    }
    if (error == EPROTOTYPE) {
        return refuse(path, "a socket of another type lives here; it was left alone: choose another path");
    }
    return refuse(
        path, fmt::format("it can not be told whether a server is behind this socket: {}; remove the file if "
                          "there is none",
                          reason(error)));
}

// With the directory locked: makes room at the path. True: a stale socket file was removed.
std::expected<bool, Error> clear_path(const std::string& path, int directory) {
    struct stat status {};
    if (::fstatat(directory, base_of(path).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        return std::unexpected(directory_error(path, errno));
    }
    if (auto socket = refuse_foreign(path, status.st_mode); !socket) {
        return std::unexpected(socket.error());
    }
    if (auto stale = require_stale(path); !stale) {
        return std::unexpected(stale.error());
    }
    if (::unlinkat(directory, base_of(path).c_str(), 0) != 0 && errno != ENOENT) {
        return refuse(path, fmt::format("a stale socket file that can not be removed: {}; remove it yourself",
                                        reason(errno)));
    }
    return true;
}

// Mode, owner and group of a file that nobody can connect to yet: the order does not matter to anybody else.
// The mode goes first, as only the owner may set it where root has no CAP_FOWNER.
Done set_access(const std::string& path, int directory, const SocketAccess& access) {
    // A default ACL of the directory came along; the mode's group bits would only be its mask (acl(5)).
    ::lremovexattr(path.c_str(), "system.posix_acl_access");
    const std::string base = base_of(path);
    if (::fchmodat(directory, base.c_str(), access.mode, AT_SYMLINK_NOFOLLOW) != 0) {
        return refuse(
            path,
            fmt::format("mode {:04o} can not be set: {}; choose a directory on a local file system, like "
                        "/run",
                        access.mode, reason(errno)));
    }
    const bool change = access.owner || access.group;
    constexpr unsigned unchanged = ~0U;
    if (change && ::fchownat(directory, base.c_str(), access.owner.value_or(unchanged),
                             access.group.value_or(unchanged), AT_SYMLINK_NOFOLLOW) != 0) {
        return refuse(
            path,
            fmt::format("owner and group can not be set: {}; start cede as root, or leave --listen-owner "
                        "and --listen-group out",
                        reason(errno)));
    }
    return {};
}

}  // namespace

std::expected<std::string, Error> check_socket_path(const std::string& path) {
    const std::string directory = directory_of(path);
    const std::unique_ptr<char, decltype(&std::free)> resolved{::realpath(directory.c_str(), nullptr),
                                                               &std::free};
    struct stat status {};
    if (!resolved || ::stat(resolved.get(), &status) != 0) {
        return std::unexpected(directory_error(path, errno));
    }
    if (!S_ISDIR(status.st_mode)) {
        return std::unexpected(directory_error(path, ENOTDIR));
    }
    if (::faccessat(AT_FDCWD, resolved.get(), R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
        return std::unexpected(directory_error(path, errno));
    }
    if (::lstat(path.c_str(), &status) == 0) {
        if (auto socket = refuse_foreign(path, status.st_mode); !socket) {
            return std::unexpected(socket.error());
        }
    }
    const std::string root{resolved.get()};
    return (root == "/" ? root : root + '/') + base_of(path);
}

std::expected<SocketFile, Error> listen_on_path(const std::string& path, const SocketAccess& access,
                                                int backlog) {
    const auto directory = lock_directory(path);
    if (!directory) {
        return std::unexpected(directory.error());
    }
    const auto replaced = clear_path(path, directory->get());
    if (!replaced) {
        return std::unexpected(replaced.error());
    }
    SocketFile file{UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, 0, 0,
                    *replaced};
    const sockaddr_un address = socket_address(path);
    // bind(2) gives the file the mode of the socket's own inode without the umask's bits (unix_bind_bsd() in
    // the kernel). Setting that to 0 here keeps everybody out from the first moment, and leaves alone the
    // umask, which belongs to the whole process. In place and not under a second name: the socket's address,
    // as ss(8) and getsockname(2) show it, is the one it was bound to, whatever the file is renamed to.
    if (!file.fd || ::fchmod(file.fd.get(), 0) != 0 ||
        ::bind(file.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        const int error = errno;
        if (error == EADDRINUSE) {
            return refuse(path,
                          "another process took this path just now; stop that one, or choose another path");
        }
        return std::unexpected(directory_error(path, error));
    }
    struct stat status {};
    const std::string base = base_of(path);
    Done done;
    if (::fstatat(directory->get(), base.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(status.st_mode)) {
        return refuse(path,
                      "the socket file vanished right after it was made; see who cleans this directory");
    }
    file.device = status.st_dev;
    file.inode = status.st_ino;
    done = set_access(path, directory->get(), access);
    if (done && ::listen(file.fd.get(), backlog) != 0) {
        done = refuse(path, fmt::format("listen failed: {}; choose another path", reason(errno)));
    }
    if (!done) {
        ::unlinkat(directory->get(), base.c_str(), 0);
        return std::unexpected(done.error());
    }
    return file;
}

void remove_socket(const std::string& path, dev_t device, ino_t inode) noexcept {
    try {
        // Without the lock (directory gone, locked by a stranger) the file stays: the next start replaces it.
        const auto directory = lock_directory(path);
        struct stat status {};
        const std::string base = base_of(path);
        if (directory && ::fstatat(directory->get(), base.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(status.st_mode) && status.st_dev == device && status.st_ino == inode) {
            ::unlinkat(directory->get(), base.c_str(), 0);
        }
    } catch (...) {
        // Out of memory while building a message: as above.
    }
}

}  // namespace cede::pm
