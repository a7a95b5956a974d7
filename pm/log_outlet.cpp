// SPDX-License-Identifier: Apache-2.0
#include "pm/log_outlet.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pm/words.h"

namespace cede::pm {
namespace {

using children::UniqueFd;
using Written = std::expected<std::size_t, int>;

template <typename Call>
Written attempt(Call call) noexcept {
    for (;;) {
        const ssize_t size = call();
        if (size >= 0) {
            return static_cast<std::size_t>(size);
        }
        if (errno != EINTR) {
            return std::unexpected(errno);
        }
    }
}

// The flag is on the call, not on the open file that others share.
Written send_at_once(int fd, std::string_view bytes) noexcept {
    return attempt([=] { return ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); });
}

Written write_all(int fd, std::string_view bytes) noexcept {
    return attempt([=] { return ::write(fd, bytes.data(), bytes.size()); });
}

// For a pipe or terminal whose flags we may not set: one that is writable takes PIPE_BUF bytes at once
// (pipe(7), poll(2)). Where the kernel knows RWF_NOWAIT for it (pipes: Linux 6.4), nobody can fill it in
// between.
Written write_if_writable(int fd, std::string_view bytes) noexcept {
    pollfd watched{fd, POLLOUT, 0};
    if (::poll(&watched, 1, 0) != 1) {
        return std::unexpected(EAGAIN);
    }
    bytes = bytes.substr(0, PIPE_BUF);
    const iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
    const Written written = attempt([&] { return ::pwritev2(fd, &vector, 1, -1, RWF_NOWAIT); });
    return !written && written.error() == EOPNOTSUPP ? write_all(fd, bytes) : written;
}

bool same_file(const struct stat& one, const struct stat& other) noexcept {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// O_NONBLOCK is for a named pipe.
UniqueFd open_for_appending(const std::string& path) noexcept {
    return UniqueFd{
        ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640)};
}

std::string file_problem(const std::string& path, int error) {
    const std::string what =
        fmt::format("the log {} can't be opened: {}", quoted(path), std::generic_category().message(error));
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return what + "; create its folder first";
        case EISDIR:
            return what + "; give the path of a file";
        case ENXIO:
            return what + "; start what reads this pipe first, or give 'stderr'";
        default:
            return what + "; see that this user may write there, or give another path";
    }
}

}  // namespace

// --- a descriptor that is there already ---

InheritedOutlet::InheritedOutlet(int fd, const char* journal_stream) noexcept : fd_{fd} {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return;
    }
    if (S_ISSOCK(status.st_mode)) {
        kind_ = Kind::socket;
    } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
        kind_ = Kind::waits;
        char self[32];
        *fmt::format_to_n(self, sizeof self - 1, "/proc/self/fd/{}", fd).out = '\0';
        own_ = UniqueFd{::open(self, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    }
    if (journal_stream != nullptr) {
        char ours[64];
        *fmt::format_to_n(ours, sizeof ours - 1, "{}:{}", status.st_dev, status.st_ino).out = '\0';
        stamp_ = std::strcmp(ours, journal_stream) == 0 ? LogStamp::journal : LogStamp::time;
    }
}

Written InheritedOutlet::write(std::string_view bytes) noexcept {
    switch (kind_) {
        case Kind::socket:
            return send_at_once(fd_, bytes);
        case Kind::waits:
            return own_ ? write_all(own_.get(), bytes) : write_if_writable(fd_, bytes);
        case Kind::plain:
            break;
    }
    return write_all(fd_, bytes);
}

// --- a file ---

std::expected<std::unique_ptr<FileOutlet>, std::string> FileOutlet::open(const std::string& path) {
    std::unique_ptr<FileOutlet> outlet{new FileOutlet{path}};
    if (const auto opened = outlet->reopen(); !opened) {
        return std::unexpected(file_problem(path, opened.error()));
    }
    return outlet;
}

Written FileOutlet::write(std::string_view bytes) noexcept {
    return write_all(fd_.get(), bytes);
}

bool FileOutlet::moved() const noexcept {
    struct stat ours {};
    struct stat there {};
    return ::fstat(fd_.get(), &ours) == 0 && (::stat(path_.c_str(), &there) != 0 || !same_file(ours, there));
}

std::expected<void, int> FileOutlet::reopen() noexcept {
    UniqueFd fresh = open_for_appending(path_);
    if (!fresh) {
        return std::unexpected(errno);
    }
    fd_ = std::move(fresh);
    return {};
}

std::string log_file_objection(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) {
            return file_problem(path, EISDIR);
        }
        return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? "" : file_problem(path, errno);
    }
    if (errno != ENOENT) {
        return file_problem(path, errno);
    }
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    return ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? ""
                                                                               : file_problem(path, errno);
}

// --- the system's log ---

std::expected<std::unique_ptr<SyslogOutlet>, std::string> SyslogOutlet::open(const std::string& path) {
    std::unique_ptr<SyslogOutlet> outlet{new SyslogOutlet{path}};
    if (const int error = outlet->connect(); error != 0) {
        return std::unexpected(
            fmt::format("nobody takes lines for syslog at {}: {}; start a syslog daemon, or "
                        "give 'stderr' or the path of a file",
                        path, std::generic_category().message(error)));
    }
    return outlet;
}

int SyslogOutlet::connect() noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof address.sun_path) {
        return ENAMETOOLONG;
    }
    path_.copy(address.sun_path, path_.size());
    fd_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd_ || ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return errno;
    }
    return 0;
}

Written SyslogOutlet::write(std::string_view bytes) noexcept {
    Written written = send_at_once(fd_.get(), bytes);
    const bool daemon_gone = !written && (written.error() == ECONNREFUSED || written.error() == ENOTCONN ||
                                          written.error() == ECONNRESET || written.error() == EBADF);
    if (daemon_gone) {
        const int error = connect();
        written = error == 0 ? send_at_once(fd_.get(), bytes) : std::unexpected(error);
    }
    return written;
}

}  // namespace cede::pm
