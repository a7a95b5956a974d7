// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_depth_parse.h"

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;

namespace {

using Buffer = std::vector<std::byte>;

constexpr unsigned listen_state = 10;
constexpr std::uint32_t sequence = 7;
constexpr std::uint32_t inode = 4711;

template <typename T>
void append(Buffer& buffer, const T& value) {
    const auto bytes = std::as_bytes(std::span{&value, 1});
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
}

Buffer attribute(std::uint16_t type, const Buffer& value) {
    Buffer out;
    append(out, rtattr{static_cast<unsigned short>(sizeof(rtattr) + value.size()), type});
    out.insert(out.end(), value.begin(), value.end());
    out.resize((out.size() + 3) & ~std::size_t{3});
    return out;
}

Buffer queue_lengths(std::uint32_t waiting, std::uint32_t backlog) {
    Buffer value;
    append(value, unix_diag_rqlen{waiting, backlog});
    return attribute(UNIX_DIAG_RQLEN, value);
}

Buffer message(std::uint16_t type, std::uint32_t with_sequence, const Buffer& payload) {
    Buffer out;
    nlmsghdr head{};
    head.nlmsg_len = static_cast<std::uint32_t>(sizeof head + payload.size());
    head.nlmsg_type = type;
    head.nlmsg_seq = with_sequence;
    append(out, head);
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
}

Buffer answer(const Buffer& attributes, std::uint32_t about = inode, unsigned state = listen_state,
              unsigned family = AF_UNIX) {
    Buffer payload;
    unix_diag_msg head{};
    head.udiag_family = static_cast<std::uint8_t>(family);
    head.udiag_type = SOCK_STREAM;
    head.udiag_state = static_cast<std::uint8_t>(state);
    head.udiag_ino = about;
    append(payload, head);
    payload.insert(payload.end(), attributes.begin(), attributes.end());
    return payload;
}

// Copies in memory of their own exact size, so that the address sanitizer sees any read beyond them.
DiagOutcome outcome(const Buffer& datagram) {
    const Buffer exact{datagram};
    return parse_unix_diag(exact, sequence, inode).outcome;
}

Buffer joined(Buffer front, const Buffer& back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
}

}  // namespace

TEST_CASE("the answer of sock_diag is found behind other attributes and behind late answers") {
    const Buffer ours =
        message(SOCK_DIAG_BY_FAMILY, sequence,
                answer(joined(attribute(UNIX_DIAG_SHUTDOWN, {std::byte{0}}), queue_lengths(3, 511))));
    const Buffer late = message(SOCK_DIAG_BY_FAMILY, sequence - 1, answer(queue_lengths(9, 9)));
    for (const Buffer& datagram : {ours, joined(late, ours)}) {
        const DiagReply reply = parse_unix_diag(datagram, sequence, inode);
        CHECK(reply.outcome == DiagOutcome::found);
        CHECK(reply.lengths == QueueLengths{3, 511});
    }
    CHECK(outcome(late) == DiagOutcome::not_ours);
}

TEST_CASE("an error of the kernel is told from a broken answer") {
    Buffer error;
    append(error, nlmsgerr{});
    CHECK(outcome(message(NLMSG_ERROR, sequence, error)) == DiagOutcome::refused);
    CHECK(outcome(message(NLMSG_DONE, sequence, {})) == DiagOutcome::refused);
    CHECK(outcome(message(NLMSG_ERROR, sequence - 1, error)) == DiagOutcome::not_ours);
}

TEST_CASE("an answer about something else than the listening Unix socket is malformed") {
    const Buffer lengths = queue_lengths(3, 511);
    CHECK(outcome(message(SOCK_DIAG_BY_FAMILY, sequence, answer(lengths, inode + 1))) ==
          DiagOutcome::malformed);
    CHECK(outcome(message(SOCK_DIAG_BY_FAMILY, sequence, answer(lengths, inode, 1))) ==
          DiagOutcome::malformed);
    CHECK(outcome(message(SOCK_DIAG_BY_FAMILY, sequence, answer(lengths, inode, listen_state, AF_INET))) ==
          DiagOutcome::malformed);
    CHECK(outcome(message(SOCK_DIAG_BY_FAMILY + 1, sequence, answer(lengths))) == DiagOutcome::malformed);
    CHECK(outcome(message(SOCK_DIAG_BY_FAMILY, sequence, answer({}))) == DiagOutcome::malformed);
}

TEST_CASE("a netlink datagram that is cut at any byte is malformed and never read beyond its end") {
    const Buffer whole = message(SOCK_DIAG_BY_FAMILY, sequence, answer(queue_lengths(3, 511)));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK(outcome(Buffer(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))) ==
              DiagOutcome::malformed);
    }
}

TEST_CASE("a netlink datagram whose lengths lie is malformed") {
    const Buffer whole = message(SOCK_DIAG_BY_FAMILY, sequence, answer(queue_lengths(3, 511)));
    for (const std::uint32_t length : {0U, 1U, 15U, 16U, 31U, 33U, 43U, 45U, 0xffffffffU}) {
        Buffer lying{whole};
        std::memcpy(lying.data(), &length, sizeof length);
        CAPTURE(length);
        CHECK(outcome(lying) == DiagOutcome::malformed);
    }
    constexpr std::size_t attribute_at = sizeof(nlmsghdr) + sizeof(unix_diag_msg);
    for (const unsigned short length : std::initializer_list<unsigned short>{0, 1, 3, 4, 8, 11, 13, 0xffff}) {
        Buffer lying{whole};
        std::memcpy(lying.data() + attribute_at, &length, sizeof length);
        CAPTURE(length);
        CHECK(outcome(lying) == DiagOutcome::malformed);
    }
}

TEST_CASE("random bytes and random changes to an answer are survived") {
    std::mt19937 random{20240601};
    const Buffer whole = message(SOCK_DIAG_BY_FAMILY, sequence, answer(queue_lengths(3, 511)));
    for (int i = 0; i < 20000; ++i) {
        Buffer changed{whole};
        for (int change = 0; change < 3; ++change) {
            changed[random() % changed.size()] = static_cast<std::byte>(random());
        }
        static_cast<void>(outcome(changed));
        Buffer noise(random() % 64);
        for (std::byte& byte : noise) {
            byte = static_cast<std::byte>(random());
        }
        CHECK(outcome(noise) != DiagOutcome::found);
    }
}

TEST_CASE("struct tcp_info is believed only when it is long enough and of a listening socket") {
    tcp_info info{};
    info.tcpi_state = listen_state;
    info.tcpi_unacked = 4;
    info.tcpi_sacked = 511;
    const auto bytes = std::as_bytes(std::span{&info, 1});
    constexpr std::size_t needed = offsetof(tcp_info, tcpi_sacked) + 4;
    CHECK(parse_tcp_info(bytes) == QueueLengths{4, 511});
    CHECK(parse_tcp_info(bytes.first(needed)) == QueueLengths{4, 511});
    for (std::size_t size = 0; size < needed; ++size) {
        const Buffer cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK_FALSE(parse_tcp_info(cut).has_value());
    }
    info.tcpi_state = 1;
    CHECK_FALSE(parse_tcp_info(bytes).has_value());
}

TEST_CASE("a LISTEN line of /proc/net/tcp gives its queue, in hexadecimal") {
    CHECK(parse_proc_net_tcp_line(
              "   0: 0100007F:2328 00000000:0000 0A 00000000:0000001F 00:00000000 00000000     0"
              "        0 4711 1 000000003eed495c 100 0 0 10 0",
              4711) == 31);
    CHECK(parse_proc_net_tcp_line(
              "  12: 00000000000000000000000001000000:2328 00000000000000000000000000000000:0000 0A "
              "00000000:00000002 00:00000000 00000000  1000        0 4711",
              4711) == 2);
}

TEST_CASE("other lines of /proc/net/tcp give nothing") {
    const std::vector<std::string_view> lines{
        "",
        " ",
        "garbage",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 4712 1",   // another
                                                                                                 // inode
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 -4711 1",  // no number
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 4711x 1",  // no number
        "0: 0100007F:2328 00000000:0000 01 00000000:00000001 00:00000000 00000000 0 0 4711 1",  // ESTABLISHED
        "0: 0100007F:2328 00000000:0000 zz 00000000:00000001 00:00000000 00000000 0 0 4711 1",  // no state
        "0: 0100007F:2328 00000000:0000 0A 0000000000000001 00:00000000 00000000 0 0 4711 1",   // no colon
        "0: 0100007F:2328 00000000:0000 0A 00000000: 00:00000000 00000000 0 0 4711 1",          // no queue
        "0: 0100007F:2328 00000000:0000 0A 00000000:1ffffffff 00:00000000 00000000 0 0 4711 1",  // too large
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0",          // cut
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 "
        "99999999999999999999999 1",
    };
    for (const std::string_view line : lines) {
        CAPTURE(line);
        CHECK_FALSE(parse_proc_net_tcp_line(std::string{line}, 4711).has_value());
    }
}

TEST_CASE("a LISTEN line that is cut anywhere before its inode's end gives nothing") {
    const std::string line =
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 4711";
    REQUIRE(parse_proc_net_tcp_line(line, 4711) == 1);
    for (std::size_t size = 0; size < line.size(); ++size) {
        CHECK_FALSE(parse_proc_net_tcp_line(line.substr(0, size), 4711).has_value());
    }
}

TEST_CASE("the line is found however the file is cut into pieces") {
    const std::string file =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "0: 0100007F:2328 00000000:0000 0A 00000000:00000009 00:00000000 00000000 0 0 4712 1\n" +
        std::string(600, 'x') + " 0: a b 0A 00000000:00000009 0 0 0 0 4711 1\n" +
        "\n0: 0100007F:2328 00000000:0000 0A 00000000:00000007 00:00000000 00000000 0 0 4711 1\n";
    for (std::size_t cut = 0; cut < file.size(); ++cut) {
        ProcNetTcpScan scan{4711};
        CHECK_FALSE(scan.feed(file.substr(0, cut)).has_value());
        CHECK(scan.feed(file.substr(cut)) == 7);
    }
    ProcNetTcpScan scan{4711};
    for (const char c : file.substr(0, file.size() - 1)) {
        CHECK_FALSE(scan.feed({&c, 1}).has_value());
    }
    CHECK(scan.feed("\n") == 7);
}
