// SPDX-License-Identifier: Apache-2.0
#include "pm/inherited.h"

#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "pm/address.h"
#include "pm/config_value.h"
#include "pm/limits.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

using children::UniqueFd;

constexpr int first_handed_over = 3;  // SD_LISTEN_FDS_START, sd_listen_fds(3)
constexpr int protocol_mptcp = 262;   // IPPROTO_MPTCP; older libc headers lack it

constexpr std::string_view three_ways =
    "give an address (--listen 127.0.0.1:9000 or --listen /run/cede.sock), or start cede from a systemd "
    "socket unit "
    "(LISTEN_FDS), or from a web server that passes its listening socket as descriptor 0";

std::unexpected<Error> refuse(std::string message) {
    return std::unexpected(Error{std::move(message), Error::failure});
}

int int_option(int fd, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

bool is_connected(int fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

// Why `fd` is no socket that children could accept from; empty if it is one.
std::string objection(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return "is not open";
    }
    if (!S_ISSOCK(status.st_mode)) {
        return "is not a socket";
    }
    const int type = int_option(fd, SO_TYPE);
    if (type != SOCK_STREAM) {
        return fmt::format("is a socket of the wrong type (a {} socket; a stream socket is needed)",
                           type == SOCK_DGRAM ? "datagram" : "packet");
    }
    const int family = int_option(fd, SO_DOMAIN);
    const int protocol = int_option(fd, SO_PROTOCOL);
    const bool internet =
        (family == AF_INET || family == AF_INET6) && (protocol == IPPROTO_TCP || protocol == protocol_mptcp);
    if (!internet && family != AF_UNIX) {
        return fmt::format(
            "is a socket of the wrong family (family {}, protocol {}; TCP or a Unix socket is needed)",
            family, protocol);
    }
    if (is_connected(fd)) {
        return "is a connection, not a listening socket (systemd: Accept=no; inetd: wait)";
    }
    if (int_option(fd, SO_ACCEPTCONN) != 1) {
        return "is a socket that does not listen (listen(2) was not called on it)";
    }
    return {};
}

// `fd` is verified. On an error it is as before.
std::expected<Listener, Error> adopt(UniqueFd fd) {
    const int flags = ::fcntl(fd.get(), F_GETFL);
    if (flags < 0 || ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 ||
        ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
        return refuse(fmt::format("descriptor {}: fcntl failed: {}; {}", fd.get(),
                                  std::generic_category().message(errno), three_ways));
    }
    Listener listener;
    listener.nonblocking_before = (flags & O_NONBLOCK) != 0;
    const int family = int_option(fd.get(), SO_DOMAIN);
    listener.kind = family == AF_INET    ? Listener::Kind::tcp4
                    : family == AF_INET6 ? Listener::Kind::tcp6
                                         : Listener::Kind::unix_stream;
    if (family != AF_UNIX) {
        // Answers of several records must not wait for the peer's acknowledgement. Failing costs time only.
        constexpr int on = 1;
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0) {
        listener.name = printable(address, length);
    }
    listener.fd = std::move(fd);
    return listener;
}

std::expected<std::vector<Listener>, Error> adopt_from_systemd(std::string_view count_text) {
    const auto count = parse_number(count_text, 1, limits::most_listeners);
    if (!count) {
        return refuse(fmt::format("LISTEN_FDS in the environment: {}; or {}", count.error(), three_ways));
    }
    const int end = first_handed_over + static_cast<int>(*count);
    for (int fd = first_handed_over; fd < end; ++fd) {
        if (const std::string problem = objection(fd); !problem.empty()) {
            return refuse(
                fmt::format("LISTEN_FDS in the environment is {}, but descriptor {} {}; correct the socket "
                            "unit, or give --listen",
                            *count, fd, problem));
        }
    }
    std::vector<Listener> listeners;
    for (int fd = first_handed_over; fd < end; ++fd) {
        auto listener = adopt(UniqueFd{fd});
        if (!listener) {
            return std::unexpected(listener.error());
        }
        listeners.push_back(std::move(*listener));
    }
    return listeners;
}

// Descriptor 0 itself goes to /dev/null: nothing that is started later may inherit the listener by standing
// in the usual place.
std::expected<std::vector<Listener>, Error> adopt_descriptor_0(std::string_view remark) {
    if (const std::string problem = objection(STDIN_FILENO); !problem.empty()) {
        return refuse(fmt::format("there is nothing to listen on: no --listen, {}, and descriptor 0 {}; {}",
                                  remark, problem, three_ways));
    }
    const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    UniqueFd fd{::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, first_handed_over)};
    if (!null || !fd) {
        return refuse(
            fmt::format("descriptor 0 can not be moved away: {}; see that /dev/null exists, and raise the "
                        "limit on open files",
                        std::generic_category().message(errno)));
    }
    auto listener = adopt(std::move(fd));
    if (!listener) {
        return std::unexpected(listener.error());
    }
    if (::dup2(null.get(), STDIN_FILENO) < 0) {
        listener->restore_flags();
        return refuse("descriptor 0 can not be replaced by /dev/null; give --listen");
    }
    std::vector<Listener> listeners;
    listeners.push_back(std::move(*listener));
    return listeners;
}

}  // namespace

bool handed_over_by_systemd(pid_t self, const char* listen_pid, const char* listen_fds) noexcept {
    return listen_pid != nullptr && listen_fds != nullptr &&
           std::string_view{listen_pid} == std::to_string(self);
}

bool connection_on_descriptor_0() noexcept {
    return int_option(STDIN_FILENO, SO_TYPE) == SOCK_STREAM && is_connected(STDIN_FILENO);
}

std::expected<std::vector<Listener>, Error> adopt_listeners(pid_t self, const char* listen_pid,
                                                            const char* listen_fds) {
    if (handed_over_by_systemd(self, listen_pid, listen_fds)) {
        return adopt_from_systemd(listen_fds);
    }
    if (listen_pid == nullptr || listen_fds == nullptr) {
        return adopt_descriptor_0("no LISTEN_FDS");
    }
    return adopt_descriptor_0(
        fmt::format("LISTEN_FDS is for process {} and this is {} (start cede without a shell around "
                    "it)",
                    quoted(listen_pid), self));
}

}  // namespace cede::pm
