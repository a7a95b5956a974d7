// SPDX-License-Identifier: Apache-2.0
// Everything below on_overtime() runs in a signal handler, between any two instructions of PHP or of the
// agent: only calls of signal-safety(7), and decisions only by what is consistent at each instruction.
#include "children/agent/overtime.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/clock.h"
#include "children/zygote_protocol.h"
#include "protocol/fastcgi.h"
#include "protocol/lsapi.h"
#include "protocol/short_answer.h"

namespace cede::agent {

using children::ChildState;
using children::overtime_signal;
using protocol::Protocol;

namespace {

namespace fastcgi = protocol::fastcgi;
namespace lsapi = protocol::lsapi;

constexpr protocol::ShortAnswer too_long{
    .status = 504,
    .reason = "Gateway Timeout",
    .lines = {},
    .body = "The request took too long and was ended.\n",
};
constexpr std::size_t largest_answer = 512;
constexpr std::uint64_t longest_drain_ns = 1'000'000'000;

// True when all of it is on its way. A part of it is no answer, and the end behind it tells the peer so.
bool send_answer(const protocol::ShortAnswer& answer) noexcept {
    std::byte memory[largest_answer];
    const std::size_t size = protocol::write_short_answer(agent.protocol, memory, agent.request_id, answer);
    if (size == 0) {
        return false;
    }
    const ssize_t sent = libc().send(agent.connection.fd(), memory, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(size);
}

// Closing with something unread would reset the connection, and the answer on its way with it.
void drain() noexcept {
    const int fd = agent.connection.fd();
    const std::uint64_t deadline = children::monotonic_ns() + longest_drain_ns;
    libc().shutdown(fd, SHUT_WR);
    for (std::uint64_t now = 0; now < deadline; now = children::monotonic_ns()) {
        char unread[4096];
        const ssize_t size = libc().recv(fd, unread, sizeof unread, MSG_DONTWAIT);
        const bool nothing = size < 0 && (errno == EAGAIN || errno == EINTR);
        if (size == 0 || (size < 0 && !nothing) || (nothing && agent.connection.received_whole())) {
            return;
        }
        if (nothing) {
            pollfd watched{fd, POLLIN, 0};
            libc().poll(&watched, 1, 10);
        }
    }
}

// PHP still knows the number: what its shutdown functions write must go nowhere.
void let_connection_go() noexcept {
    const int fd = agent.connection.fd();
    agent.connection.forget();
    if (fd < 0) {
        return;
    }
    libc().shutdown(fd, SHUT_RDWR);
    redirect_to_null(fd);
}

// lsphp runs a script's shutdown functions at TERM and ends, when PHP is at a point where it can do so. It is
// taken at its word for as long as the supervisor is patient.
bool ends_by_term() noexcept {
    struct sigaction term {};
    return agent.protocol == Protocol::lsapi && libc().sigaction(SIGTERM, nullptr, &term) == 0 &&
           term.sa_handler != SIG_DFL && term.sa_handler != SIG_IGN;
}

// Out of it the web server learns as much as can be said.
void part_with_peer(ChildState state, const protocol::ShortAnswer& answer) noexcept {
    // Of an answer that has begun no end is made up: the part would pass for the whole. Nor is one given
    // while a second request is on the connection, which would take it for its own or be lost behind it.
    const bool answerable = state == ChildState::busy && agent.connection.fd() >= 0 &&
                            agent.connection.alone() && !agent.answer_begun;
    if (answerable && send_answer(answer)) {
        drain();
    }
    let_connection_go();
}

void end_request(ChildState state) noexcept {
    part_with_peer(state, too_long);
    if (ends_by_term()) {
        kill(getpid(), SIGTERM);
        return;
    }
    publish(ChildState::exiting);
    _exit(0);
}

void set_default() noexcept {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    libc().sigaction(overtime_signal, &action, nullptr);
}

void on_overtime(int number, siginfo_t* info, void* /*context*/) {
    const int before = errno;
    if (agent.role != Role::child || info->si_code != SI_QUEUE || info->si_pid != getppid()) {
        // Somebody else's, who means what this signal does to a program that does not know it.
        set_default();
        kill(getpid(), number);
    } else {
        // Which request is meant: this child may have gone on to another one meanwhile.
        const auto begun = static_cast<std::uint32_t>(agent.slot->begun.load(std::memory_order_relaxed));
        const ChildState state = agent.slot->state.load(std::memory_order_relaxed);
        if (begun == static_cast<std::uint32_t>(info->si_value.sival_int) &&
            (state == ChildState::busy || state == ChildState::finishing)) {
            end_request(state);
        }
    }
    errno = before;
}

// Of a header of the protocol that is spoken: what follows it, if it is a line for the web server's log.
bool leads_log_line(protocol::Bytes header, std::size_t& content) noexcept {
    if (agent.protocol == Protocol::lsapi) {
        const lsapi::PacketHeader packet = lsapi::decode_header(header);
        constexpr auto least = static_cast<std::int32_t>(lsapi::packet_header_size);
        content = packet.length > least ? static_cast<std::size_t>(packet.length - least) : 0;
        return packet.type == lsapi::PacketType::stderr_stream && packet.length >= least;
    }
    const fastcgi::RecordHeader record = fastcgi::decode_header(header);
    content = std::size_t{record.content_length} + record.padding_length;
    return record.type == fastcgi::RecordType::stderr_stream;
}

// They hold whole records or packets of that kind, and nothing else.
bool only_log_lines(const iovec* parts, int count) noexcept {
    static_assert(fastcgi::header_size == lsapi::packet_header_size);
    std::byte header[fastcgi::header_size];
    std::size_t have = 0;
    std::size_t content = 0;
    for (int i = 0; i < count; ++i) {
        const auto* const from = static_cast<const std::byte*>(parts[i].iov_base);
        for (std::size_t at = 0; at < parts[i].iov_len;) {
            if (content > 0) {
                const std::size_t left = parts[i].iov_len - at;
                const std::size_t part = content < left ? content : left;
                content -= part;
                at += part;
                continue;
            }
            header[have++] = from[at++];
            if (have == sizeof header) {
                have = 0;
                if (!leads_log_line(header, content)) {
                    return false;
                }
            }
        }
    }
    return have == 0 && content == 0;
}

bool is_ours(const struct sigaction& action) noexcept {
    return (static_cast<unsigned>(action.sa_flags) & SA_SIGINFO) != 0 && action.sa_sigaction == on_overtime;
}

}  // namespace

void watch_overtime() noexcept {
    struct sigaction action {};
    action.sa_sigaction = on_overtime;
    action.sa_flags = static_cast<int>(unsigned{SA_SIGINFO} | unsigned{SA_RESTART});
    sigfillset(&action.sa_mask);
    libc().sigaction(overtime_signal, &action, nullptr);
}

void forget_overtime() noexcept {
    struct sigaction now {};
    if (libc().sigaction(overtime_signal, nullptr, &now) == 0 && is_ours(now)) {
        set_default();
    }
}

void end_request_now(const protocol::ShortAnswer& answer) noexcept {
    const ChildState state = agent.slot->state.load(std::memory_order_relaxed);
    publish(ChildState::exiting);  // so that the signal ends nothing here a second time
    part_with_peer(state, answer);
    _exit(0);
}

bool note_writing(const iovec* parts, int count) noexcept {
    const bool before = agent.answer_begun;
    // lsphp acknowledges a request before it runs it, which is no part of the answer.
    if (agent.protocol == Protocol::lsapi && count > 0 && parts[0].iov_len == lsapi::packet_header_size &&
        lsapi::decode_header({static_cast<const std::byte*>(parts[0].iov_base), parts[0].iov_len}).type ==
            lsapi::PacketType::req_received) {
        return before;
    }
    agent.answer_begun = true;
    return before;
}

void note_whole_write(const iovec* parts, int count) noexcept {
    if (only_log_lines(parts, count)) {
        agent.answer_begun = false;
    }
}

bool overtime_disposition(int number, const struct sigaction* action, struct sigaction* old,
                          int& result) noexcept {
    if (number != overtime_signal || agent.role != Role::child) {
        return false;
    }
    const bool to_default = action != nullptr && action->sa_handler == SIG_DFL;
    result = libc().sigaction(number, to_default ? nullptr : action, old);
    if (result == 0 && old != nullptr && is_ours(*old)) {
        *old = {};
    }
    if (result == 0 && to_default) {
        watch_overtime();
    }
    return true;
}

SignalHandler overtime_set(int number, SignalHandler before) noexcept {
    if (number != overtime_signal || agent.role != Role::child) {
        return before;
    }
    struct sigaction now {};
    libc().sigaction(number, nullptr, &now);
    if (now.sa_handler == SIG_DFL || is_ours(now)) {
        watch_overtime();
    }
    struct sigaction ours {};
    ours.sa_sigaction = on_overtime;
    return before == ours.sa_handler ? SIG_DFL : before;
}

}  // namespace cede::agent
