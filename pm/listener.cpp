// SPDX-License-Identifier: Apache-2.0
#include "pm/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <grp.h>
#include <optional>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pm/address.h"
#include "pm/identity.h"
#include "pm/inherited.h"
#include "pm/queue_depth.h"
#include "pm/tcp_socket.h"
#include "pm/unix_socket.h"

namespace cede::pm {
namespace {

using children::UniqueFd;
using Done = std::expected<void, Error>;

// The kernel cuts what listen(2) asks for to net.core.somaxconn and does not say so. /proc is for kernels
// that do not tell what they granted either.
int granted_backlog(int fd, int asked) {
    if (const auto reading = QueueDepth::best_for(fd).read(); reading && reading->backlog) {
        return static_cast<int>(std::min(*reading->backlog, 0x7fffffffU));
    }
    const auto most = most_granted();
    return most && static_cast<int>(*most) > 0 ? std::min(asked, static_cast<int>(*most)) : asked;
}

std::string bound_name(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    const bool known = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    return known ? printable(address, length) : "(unknown address)";
}

std::string access_of(const struct stat& status) {
    const auto named = [](const auto* entry, auto name, unsigned id) {
        return entry != nullptr ? std::string{entry->*name} : std::to_string(id);
    };
    return fmt::format("mode {:04o}, owner {}, group {}", status.st_mode & 07777U,
                       named(::getpwuid(status.st_uid), &passwd::pw_name, status.st_uid),
                       named(::getgrgid(status.st_gid), &group::gr_name, status.st_gid));
}

class Opener {
  public:
    explicit Opener(const Config& config) : config_{config} {}

    std::expected<OpenedListeners, Error> open_all() {
        for (const std::string& listen : config_.listen) {
            if (auto done = open(listen); !done) {
                std::ranges::for_each(opened_.listeners, &Listener::remove_socket_file);
                return std::unexpected(
                    Error{fmt::format("{}: {}", where(config_, "listen", listen), done.error().message),
                          done.error().exit_status});
            }
        }
        return std::move(opened_);
    }

  private:
    Done open(const std::string& listen) {
        const auto address = parse_address(listen);
        if (!address) {
            return std::unexpected(address.error());
        }
        switch (address->form) {
            case Address::Form::tcp4:
                return add_tcp(listen_on_tcp4(address->v4, address->port, config_.backlog), *address,
                               Listener::Kind::tcp4);
            case Address::Form::tcp6:
                return add_tcp(listen_on_tcp6(address->v6, address->scope, address->port, Families::v6_only,
                                              config_.backlog),
                               *address, Listener::Kind::tcp6);
            case Address::Form::any:
                return open_any(*address);
            case Address::Form::localhost:
                return open_localhost(*address);
            case Address::Form::unix_path:
                break;
        }
        return open_unix(address->path);
    }

    Done open_any(const Address& address) {
        auto both = listen_on_tcp6(in6addr_any, 0, address.port, Families::both, config_.backlog);
        if (both || !both.error().no_family()) {
            return add_tcp(std::move(both), address, Listener::Kind::tcp6);
        }
        opened_.warnings.push_back(
            fmt::format("{}: this machine has no IPv6, so only IPv4 is served", address.name()));
        return add_tcp(listen_on_tcp4(in_addr{INADDR_ANY}, address.port, config_.backlog), address,
                       Listener::Kind::tcp4);
    }

    // Both families: whoever looks localhost up may get either.
    Done open_localhost(const Address& address) {
        Address v4 = address;
        v4.form = Address::Form::tcp4;
        v4.v4.s_addr = htonl(INADDR_LOOPBACK);
        if (auto done = add_tcp(listen_on_tcp4(v4.v4, v4.port, config_.backlog), v4, Listener::Kind::tcp4);
            !done) {
            return done;
        }
        Address v6 = address;
        v6.form = Address::Form::tcp6;
        v6.v6 = in6addr_loopback;
        v6.port = bound_port(opened_.listeners.back().fd.get());
        auto fd = listen_on_tcp6(v6.v6, 0, v6.port, Families::v6_only, config_.backlog);
        if (!fd && fd.error().no_family()) {
            opened_.warnings.push_back(
                fmt::format("{}: this machine has no IPv6, so only 127.0.0.1 is served", address.name()));
            return {};
        }
        return add_tcp(std::move(fd), v6, Listener::Kind::tcp6);
    }

    Done add_tcp(std::expected<UniqueFd, TcpFailure> fd, const Address& address, Listener::Kind kind) {
        if (!fd) {
            return std::unexpected(tcp_error(address.name(), fd.error()));
        }
        Listener listener;
        listener.kind = kind;
        listener.name = address.form == Address::Form::any ? fmt::format("*:{}", bound_port(fd->get()))
                                                           : bound_name(fd->get());
        const bool wildcard = address.form == Address::Form::any ||
                              (address.form == Address::Form::tcp4 && address.v4.s_addr == INADDR_ANY) ||
                              (address.form == Address::Form::tcp6 && IN6_IS_ADDR_UNSPECIFIED(&address.v6));
        if (wildcard) {
            opened_.warnings.push_back(fmt::format(
                "{}: whoever can reach this port can run PHP code of his own here, for FastCGI has no "
                "password; guard it with a firewall, or listen on 127.0.0.1 or a socket file",
                listener.name));
        }
        return add(std::move(listener), std::move(*fd));
    }

    std::expected<SocketAccess, Error> wanted_access() const {
        SocketAccess access{config_.listen_mode, {}, {}};
        if (!config_.listen_owner.empty()) {
            const auto owner = resolve_user(config_.listen_owner, where(config_, "listen-owner"));
            if (!owner) {
                return std::unexpected(owner.error());
            }
            access.owner = *owner;
        }
        if (!config_.listen_group.empty()) {
            const auto group = resolve_group(config_.listen_group, where(config_, "listen-group"));
            if (!group) {
                return std::unexpected(group.error());
            }
            access.group = *group;
        } else if (::geteuid() == 0 && config_.listen_owner.empty()) {
            // Left to root:root, mode 0660 would shut out every web server.
            if (const auto identity = resolve_identity(config_, 0); identity && identity->change) {
                access.group = identity->gid;
            }
        }
        return access;
    }

    Done open_unix(const std::string& path) {
        const auto access = wanted_access();
        if (!access) {
            return std::unexpected(access.error());
        }
        auto file = listen_on_path(path, *access, config_.backlog);
        if (!file) {
            return std::unexpected(file.error());
        }
        Listener listener;
        listener.kind = Listener::Kind::unix_stream;
        listener.name = path;
        listener.path = path;
        listener.device = file->device;
        listener.inode = file->inode;
        struct stat status {};
        if (::lstat(path.c_str(), &status) == 0) {
            listener.access = access_of(status);
        }
        if (file->replaced_stale) {
            opened_.warnings.push_back(
                fmt::format("{}: replaced a socket file that nobody served any more", path));
        }
        if ((config_.listen_mode & S_IWOTH) != 0) {
            opened_.warnings.push_back(fmt::format(
                "{}: every user of this machine can connect and run PHP code here ({}); give --listen-mode "
                "0660 and --listen-group",
                path, listener.access));
        }
        return add(std::move(listener), std::move(file->fd));
    }

    Done add(Listener listener, UniqueFd fd) {
        listener.created = true;
        listener.fd = std::move(fd);
        // A process started with one of descriptors 0 to 2 closed would get a listener there.
        if (listener.fd.get() <= STDERR_FILENO) {
            listener.fd = UniqueFd{::fcntl(listener.fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
        }
        if (!listener.fd) {
            listener.remove_socket_file();
            return std::unexpected(
                Error{fmt::format("{}: no more descriptors: {}; raise the limit on open files", listener.name,
                                  std::generic_category().message(errno)),
                      Error::failure});
        }
        listener.backlog_asked = config_.backlog;
        listener.backlog_granted = granted_backlog(listener.fd.get(), config_.backlog);
        if (listener.backlog_granted < listener.backlog_asked) {
            opened_.warnings.push_back(
                fmt::format("{0}: the kernel cut the backlog from {1} to {2}; set sysctl net.core.somaxconn "
                            "to {1} or more, or give "
                            "--backlog {2}",
                            listener.name, listener.backlog_asked, listener.backlog_granted));
        }
        opened_.listeners.push_back(std::move(listener));
        return {};
    }

    const Config& config_;
    OpenedListeners opened_;
};

}  // namespace

void Listener::remove_socket_file() noexcept {
    if (created && !path.empty()) {
        remove_socket(path, device, inode);
    }
}

void Listener::set_backlog(int asked, Whose whose) noexcept {
    if ((created || whose == Whose::anybodys) && asked != backlog_asked && ::listen(fd.get(), asked) == 0) {
        backlog_asked = asked;
        backlog_granted = granted_backlog(fd.get(), asked);
    }
}

std::optional<unsigned> most_granted() noexcept {
    std::array<char, 32> text{};
    const UniqueFd file{::open("/proc/sys/net/core/somaxconn", O_RDONLY | O_CLOEXEC)};
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : -1;
    unsigned most = 0;
    if (size <= 0 || std::from_chars(text.data(), text.data() + size, most).ec != std::errc{}) {
        return std::nullopt;
    }
    return most;
}

void Listener::restore_flags() noexcept {
    if (created || nonblocking_before || !fd) {
        return;
    }
    if (const int flags = ::fcntl(fd.get(), F_GETFL); flags >= 0) {
        ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
    }
}

std::expected<OpenedListeners, Error> open_listeners(const Config& config, pid_t self, const char* listen_pid,
                                                     const char* listen_fds) {
    if (!config.listen.empty()) {
        auto opened = Opener{config}.open_all();
        if (opened && listen_fds != nullptr && listen_pid != nullptr && std::to_string(self) == listen_pid) {
            opened->warnings.push_back(
                "LISTEN_FDS: the sockets that systemd handed over are not used, because of --listen; leave "
                "one of the "
                "two out");
        }
        return opened;
    }
    auto adopted = adopt_listeners(self, listen_pid, listen_fds);
    if (!adopted) {
        return std::unexpected(adopted.error());
    }
    for (Listener& listener : *adopted) {
        listener.backlog_granted = granted_backlog(listener.fd.get(), 0);
        listener.backlog_asked = listener.backlog_granted;
    }
    return OpenedListeners{std::move(*adopted), {}};
}

}  // namespace cede::pm
