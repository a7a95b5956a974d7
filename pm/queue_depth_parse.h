// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace cede::pm {

// Readers of what the kernel says about accept queues. Their input is untrusted: it may be cut anywhere, or
// be garbage.

struct QueueLengths {
    unsigned waiting = 0;
    unsigned backlog = 0;

    bool operator==(const QueueLengths&) const = default;
};

// struct tcp_info as getsockopt(2) filled it, of a socket in state LISTEN. Nothing if it is too short to hold
// both numbers, or is of another state, where the fields mean something else.
std::optional<QueueLengths> parse_tcp_info(std::span<const std::byte> bytes);

enum class DiagOutcome {
    found,     // the answer; lengths are set
    not_ours,  // well-formed, but answers another question (an earlier one that came late): read on
    refused,   // the kernel reports an error, for example no such socket
    malformed,
};
struct DiagReply {
    DiagOutcome outcome = DiagOutcome::malformed;
    QueueLengths lengths;
};

// One datagram from NETLINK_SOCK_DIAG (sock_diag(7)), read for the answer to request `sequence` about the
// listening Unix socket with this inode.
DiagReply parse_unix_diag(std::span<const std::byte> datagram, std::uint32_t sequence, std::uint32_t inode);

// One line of /proc/net/tcp or /proc/net/tcp6 (proc(5)), without the line feed: the accept queue's length if
// it is the LISTEN line of this inode. Nothing for the heading, other sockets and broken lines.
std::optional<unsigned> parse_proc_net_tcp_line(std::string_view line, std::uint64_t inode);

// The same for the file as it is read, in pieces of any size. Holds no more than one line; one that is too
// long to be right is skipped to its end.
class ProcNetTcpScan {
  public:
    explicit ProcNetTcpScan(std::uint64_t inode) noexcept : inode_{inode} {}

    // The queue's length as soon as the line has been seen.
    std::optional<unsigned> feed(std::string_view piece) noexcept;

  private:
    std::uint64_t inode_;
    std::array<char, 512> line_;  // a line of tcp6 takes less than 200
    std::size_t length_ = 0;
    bool too_long_ = false;
};

}  // namespace cede::pm
