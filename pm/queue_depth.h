// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "children/unique_fd.h"

namespace cede::pm {

// How many connections wait in a listening socket's accept queue. One object for one listener. Only borrows
// the listener's descriptor, which must outlive it. One system call for tcp_info and readiness, a few
// microseconds; two for sock_diag, where the kernel walks all Unix sockets of the network namespace: 7 us
// with few of them, 0.7 ms with 18,000 (Linux 6.18), so ask it only when the listener is readable.
class QueueDepth {
  public:
    enum class Source {
        tcp_info,      // getsockopt(TCP_INFO): tcpi_unacked, and tcpi_sacked is the backlog
        sock_diag,     // sock_diag(7), Unix sockets: UNIX_DIAG_RQLEN, by inode
        proc_net_tcp,  // proc(5): rx_queue of the LISTEN line in /proc/net/tcp or tcp6, by inode
        readiness,     // poll(2): 0, or 1 for "at least one"
    };
    struct Reading {
        unsigned waiting = 0;
        std::optional<unsigned> backlog;  // as the kernel granted it
    };

    // The first source in the above order that answers for this socket.
    static QueueDepth best_for(int listener_fd) noexcept;

    // Starts with this source.
    QueueDepth(int listener_fd, Source source) noexcept;

    // A source that fails is left for good in favour of the next one in the above order, within the same
    // call. Nothing when the last one fails, too: the descriptor is no listening socket.
    [[nodiscard]] std::optional<Reading> read() noexcept;

    [[nodiscard]] Source source() const noexcept { return source_; }

  private:
    [[nodiscard]] std::optional<Reading> ask() noexcept;
    [[nodiscard]] std::optional<Reading> ask_tcp_info() const noexcept;
    [[nodiscard]] std::optional<Reading> ask_sock_diag() noexcept;
    [[nodiscard]] std::optional<Reading> ask_sock_diag_once() noexcept;
    [[nodiscard]] std::optional<Reading> ask_proc_net_tcp() noexcept;
    [[nodiscard]] std::optional<Reading> ask_readiness() const noexcept;

    int fd_;
    Source source_;
    int family_ = 0;
    bool listening_ = false;  // when this object was made
    std::uint64_t inode_ = 0;
    std::uint32_t sequence_ = 0;
    std::optional<unsigned> backlog_;  // sock_diag only: as it was when there was last something to count
    children::UniqueFd source_fd_;     // netlink socket or /proc file, kept open
};

// The word for logs and metrics: "tcp_info", ...
std::string_view to_string(QueueDepth::Source source) noexcept;

}  // namespace cede::pm
