// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_depth_parse.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

namespace cede::pm {
namespace {

using Bytes = std::span<const std::byte>;

// include/net/tcp_states.h; both families use these numbers, and no exported header names them for sock_diag.
constexpr unsigned state_listen = 10;

// Netlink pads messages and attributes to 4 bytes (netlink(7)).
constexpr std::size_t aligned(std::size_t length) {
    return (length + 3) & ~std::size_t{3};
}

// A T from the front of `bytes`, which need not be aligned for it.
template <typename T>
std::optional<T> read_front(Bytes bytes) {
    if (bytes.size() < sizeof(T)) {
        return std::nullopt;
    }
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

// Behind the unix_diag_msg: attributes. Nothing if they end without the wanted one, or one is broken.
std::optional<QueueLengths> find_queue_lengths(Bytes attributes) {
    while (const auto head = read_front<rtattr>(attributes)) {
        if (head->rta_len < sizeof(rtattr) || head->rta_len > attributes.size()) {
            return std::nullopt;
        }
        if (head->rta_type == UNIX_DIAG_RQLEN) {
            const Bytes value = attributes.subspan(sizeof(rtattr), head->rta_len - sizeof(rtattr));
            const auto lengths = read_front<unix_diag_rqlen>(value);
            if (!lengths) {
                return std::nullopt;
            }
            return QueueLengths{lengths->udiag_rqueue, lengths->udiag_wqueue};
        }
        attributes = attributes.subspan(std::min(aligned(head->rta_len), attributes.size()));
    }
    return std::nullopt;
}

DiagReply parse_message(std::uint16_t type, Bytes payload, std::uint32_t inode) {
    if (type == NLMSG_ERROR || type == NLMSG_DONE) {
        return {DiagOutcome::refused, {}};
    }
    if (type != SOCK_DIAG_BY_FAMILY) {
        return {DiagOutcome::malformed, {}};
    }
    const auto message = read_front<unix_diag_msg>(payload);
    const bool about_it = message && message->udiag_family == AF_UNIX && message->udiag_ino == inode &&
                          message->udiag_state == state_listen;
    if (!about_it) {
        return {DiagOutcome::malformed, {}};
    }
    const auto lengths = find_queue_lengths(payload.subspan(aligned(sizeof(unix_diag_msg))));
    return lengths ? DiagReply{DiagOutcome::found, *lengths} : DiagReply{DiagOutcome::malformed, {}};
}

// A number that fills the text.
template <typename T>
std::optional<T> parse_whole(std::string_view text, int base) {
    T number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc{} || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

}  // namespace

std::optional<QueueLengths> parse_tcp_info(Bytes bytes) {
    constexpr std::size_t needed = offsetof(tcp_info, tcpi_sacked) + sizeof(tcp_info::tcpi_sacked);
    if (bytes.size() < needed) {
        return std::nullopt;
    }
    tcp_info info{};
    std::memcpy(&info, bytes.data(), needed);
    if (info.tcpi_state != state_listen) {
        return std::nullopt;
    }
    return QueueLengths{info.tcpi_unacked, info.tcpi_sacked};
}

DiagReply parse_unix_diag(Bytes datagram, std::uint32_t sequence, std::uint32_t inode) {
    bool late_answer = false;
    while (const auto head = read_front<nlmsghdr>(datagram)) {
        if (head->nlmsg_len < sizeof(nlmsghdr) || head->nlmsg_len > datagram.size()) {
            return {DiagOutcome::malformed, {}};
        }
        if (head->nlmsg_seq == sequence) {
            const Bytes payload = datagram.subspan(sizeof(nlmsghdr), head->nlmsg_len - sizeof(nlmsghdr));
            return parse_message(head->nlmsg_type, payload, inode);
        }
        late_answer = true;
        datagram = datagram.subspan(std::min(aligned(head->nlmsg_len), datagram.size()));
    }
    return {late_answer ? DiagOutcome::not_ours : DiagOutcome::malformed, {}};
}

std::optional<unsigned> parse_proc_net_tcp_line(std::string_view line, std::uint64_t inode) {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...
    constexpr std::size_t state_column = 3;
    constexpr std::size_t queue_column = 4;
    constexpr std::size_t inode_column = 9;
    std::array<std::string_view, inode_column + 1> columns;
    for (std::string_view& column : columns) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        const std::size_t length = std::min(line.find(' '), line.size());
        column = line.substr(0, length);
        line.remove_prefix(length);
    }
    if (parse_whole<std::uint64_t>(columns[inode_column], 10) != inode ||
        parse_whole<unsigned>(columns[state_column], 16) != state_listen) {
        return std::nullopt;
    }
    const std::string_view queues = columns[queue_column];
    const std::size_t colon = queues.find(':');
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    return parse_whole<unsigned>(queues.substr(colon + 1), 16);
}

std::optional<unsigned> ProcNetTcpScan::feed(std::string_view piece) noexcept {
    while (!piece.empty()) {
        const std::size_t end = piece.find('\n');
        const std::string_view part = piece.substr(0, end);
        too_long_ = too_long_ || part.size() > line_.size() - length_;
        if (!too_long_) {
            part.copy(line_.data() + length_, part.size());
            length_ += part.size();
        }
        if (end == std::string_view::npos) {
            return std::nullopt;
        }
        const std::string_view line{line_.data(), std::exchange(length_, 0)};
        if (!std::exchange(too_long_, false)) {
            if (const auto waiting = parse_proc_net_tcp_line(line, inode_)) {
                return waiting;
            }
        }
        piece.remove_prefix(end + 1);
    }
    return std::nullopt;
}

}  // namespace cede::pm
