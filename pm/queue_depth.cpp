// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_depth.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pm/queue_depth_parse.h"

namespace cede::pm {
namespace {

// The kernel answers before sendto(2) returns. The wait is for one that some day does not; the loop must not
// hang.
constexpr int diag_wait_milliseconds = 100;
constexpr int most_diag_datagrams = 16;

int int_option(int fd, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

std::optional<QueueDepth::Reading> as_reading(const std::optional<QueueLengths>& lengths) {
    if (!lengths) {
        return std::nullopt;
    }
    return QueueDepth::Reading{lengths->waiting, lengths->backlog};
}

bool send_request(int netlink, std::uint32_t sequence, std::uint32_t inode) {
    struct {
        nlmsghdr head;
        unix_diag_req body;
    } request{};
    request.head.nlmsg_len = sizeof request;
    request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.head.nlmsg_flags = NLM_F_REQUEST;
    request.head.nlmsg_seq = sequence;
    request.body.sdiag_family = AF_UNIX;
    request.body.udiag_states = ~0U;
    request.body.udiag_ino = inode;
    request.body.udiag_show = UDIAG_SHOW_RQLEN;
    // "No cookie": any socket with this inode. linux/inet_diag.h calls it INET_DIAG_NOCOOKIE, for both
    // families.
    request.body.udiag_cookie[0] = ~0U;
    request.body.udiag_cookie[1] = ~0U;
    const sockaddr_nl kernel{AF_NETLINK, 0, 0, 0};
    sockaddr destination{};
    static_assert(sizeof destination >= sizeof kernel);
    std::memcpy(&destination, &kernel, sizeof kernel);
    return ::sendto(netlink, &request, sizeof request, MSG_DONTWAIT, &destination, sizeof kernel) ==
           static_cast<ssize_t>(sizeof request);
}

// The size of the datagram in `buffer`; 0: nobody but the kernel may answer, so it was thrown away; -1: none
// came.
ssize_t receive(int netlink, std::span<std::byte> buffer) {
    for (bool waited = false;;) {
        sockaddr_nl sender{};
        sockaddr_storage from{};
        socklen_t length = sizeof from;
        const ssize_t got = ::recvfrom(netlink, buffer.data(), buffer.size(), MSG_DONTWAIT,
                                       reinterpret_cast<sockaddr*>(&from), &length);
        if (got >= 0) {
            std::memcpy(&sender, &from, sizeof sender);
            return length >= sizeof sender && sender.nl_pid == 0 ? got : 0;
        }
        if (errno == EINTR) {
            continue;
        }
        pollfd readable{netlink, POLLIN, 0};
        if (errno != EAGAIN || waited || ::poll(&readable, 1, diag_wait_milliseconds) != 1) {
            return -1;
        }
        waited = true;
    }
}

}  // namespace

QueueDepth QueueDepth::best_for(int listener_fd) noexcept {
    QueueDepth depth{listener_fd, Source::tcp_info};
    static_cast<void>(depth.read());
    return depth;
}

QueueDepth::QueueDepth(int listener_fd, Source source) noexcept
    : fd_{listener_fd},
      source_{source},
      family_{int_option(listener_fd, SO_DOMAIN)},
      listening_{int_option(listener_fd, SO_ACCEPTCONN) == 1} {
    struct stat status {};
    if (::fstat(listener_fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
        inode_ = status.st_ino;
    }
}

std::optional<QueueDepth::Reading> QueueDepth::read() noexcept {
    for (;;) {
        if (const auto reading = ask(); reading || source_ == Source::readiness) {
            return reading;
        }
        source_ = static_cast<Source>(static_cast<int>(source_) + 1);
        source_fd_.reset();
    }
}

std::optional<QueueDepth::Reading> QueueDepth::ask() noexcept {
    switch (source_) {
        case Source::tcp_info:
            return ask_tcp_info();
        case Source::sock_diag:
            return ask_sock_diag();
        case Source::proc_net_tcp:
            return ask_proc_net_tcp();
        case Source::readiness:
            break;
    }
    return ask_readiness();
}

std::optional<QueueDepth::Reading> QueueDepth::ask_tcp_info() const noexcept {
    std::array<std::byte, sizeof(tcp_info)> info{};
    socklen_t length = info.size();
    if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, info.data(), &length) != 0) {
        return std::nullopt;
    }
    return as_reading(parse_tcp_info(std::span{info}.first(length)));
}

std::optional<QueueDepth::Reading> QueueDepth::ask_sock_diag() noexcept {
    if (family_ != AF_UNIX) {
        return std::nullopt;
    }
    // The kernel walks all Unix sockets for an answer (some hundred microseconds with 10,000 parked
    // connections); whether there is anything to count is cheap to know.
    if (const auto ready = ask_readiness(); backlog_ && ready && ready->waiting == 0) {
        return Reading{0, backlog_};
    }
    if (const auto reading = ask_sock_diag_once()) {
        return reading;
    }
    // A netlink socket can be beyond use (its buffer overran, say). Only a new one that fails as well says
    // that the source is none.
    source_fd_.reset();
    return ask_sock_diag_once();
}

std::optional<QueueDepth::Reading> QueueDepth::ask_sock_diag_once() noexcept {
    if (!source_fd_) {
        source_fd_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
    }
    // The request has 32 bits for the inode; that of a socket has no more (get_next_ino() in the kernel).
    const auto inode = static_cast<std::uint32_t>(inode_);
    if (!source_fd_ || !send_request(source_fd_.get(), ++sequence_, inode)) {
        return std::nullopt;
    }
    std::array<std::byte, 4096> buffer;
    for (int i = 0; i < most_diag_datagrams; ++i) {
        const ssize_t got = receive(source_fd_.get(), buffer);
        if (got < 0) {
            return std::nullopt;
        }
        if (got == 0) {
            continue;
        }
        const auto reply =
            parse_unix_diag(std::span{buffer}.first(static_cast<std::size_t>(got)), sequence_, inode);
        if (reply.outcome == DiagOutcome::found) {
            const auto reading = as_reading(reply.lengths);
            backlog_ = reading->backlog;
            return reading;
        }
        if (reply.outcome != DiagOutcome::not_ours) {
            return std::nullopt;
        }
    }
    return std::nullopt;
}

std::optional<QueueDepth::Reading> QueueDepth::ask_proc_net_tcp() noexcept {
    if (family_ != AF_INET && family_ != AF_INET6) {
        return std::nullopt;
    }
    if (!source_fd_) {
        const char* path = family_ == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
        source_fd_.reset(::open(path, O_RDONLY | O_CLOEXEC));
    }
    if (!source_fd_ || ::lseek(source_fd_.get(), 0, SEEK_SET) != 0) {
        return std::nullopt;
    }
    // Listening sockets come first, so this ends early however many connections there are. The bound is for a
    // file that never ends.
    constexpr int most_chunks = 16384;
    std::array<char, 8192> buffer;
    ProcNetTcpScan scan{inode_};
    for (int i = 0; i < most_chunks; ++i) {
        const ssize_t got = ::read(source_fd_.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return std::nullopt;
        }
        if (const auto waiting = scan.feed({buffer.data(), static_cast<std::size_t>(got)})) {
            return Reading{*waiting, std::nullopt};
        }
    }
    return std::nullopt;
}

std::optional<QueueDepth::Reading> QueueDepth::ask_readiness() const noexcept {
    pollfd listener{fd_, POLLIN, 0};
    int ready = 0;
    do {
        ready = ::poll(&listener, 1, 0);
    } while (ready < 0 && errno == EINTR);
    if (ready < 0 || !listening_ || (listener.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
        return std::nullopt;
    }
    return Reading{ready == 1 ? 1U : 0U, std::nullopt};
}

std::string_view to_string(QueueDepth::Source source) noexcept {
    switch (source) {
        case QueueDepth::Source::tcp_info:
            return "tcp_info";
        case QueueDepth::Source::sock_diag:
            return "sock_diag";
        case QueueDepth::Source::proc_net_tcp:
            return "proc_net_tcp";
        case QueueDepth::Source::readiness:
            break;
    }
    return "readiness";
}

}  // namespace cede::pm
