// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <sys/socket.h>

#include "children/unique_fd.h"
#include "tests/support/listening.h"

namespace cede::tests {

// Numbers of the open descriptors of a process, and what they lead to (proc(5)).
inline std::map<int, std::string> descriptors_of(const std::string& process = "self") {
    std::map<int, std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/" + process + "/fd"}) {
        std::error_code gone;
        const auto target = std::filesystem::read_symlink(entry.path(), gone);
        if (!gone) {
            result[std::stoi(entry.path().filename().string())] = target.string();
        }
    }
    if (process == "self") {
        // The one that was used for looking.
        std::erase_if(result, [](const auto& item) { return ::fcntl(item.first, F_GETFD) < 0; });
    }
    return result;
}

inline bool closes_on_exec(int fd) {
    return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

struct Ends {
    UniqueFd ours;
    UniqueFd theirs;
};

inline Ends socket_pair(int type = SOCK_SEQPACKET) {
    int ends[2];
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) {
        throw std::runtime_error{std::string{"socketpair: "} + std::strerror(errno)};
    }
    return {UniqueFd{ends[0]}, UniqueFd{ends[1]}};
}

inline Ends pipe_pair() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw std::runtime_error{std::string{"pipe2: "} + std::strerror(errno)};
    }
    return {UniqueFd{ends[0]}, UniqueFd{ends[1]}};
}

// `ours` is what accept(2) returned, `theirs` what connected.
inline Ends tcp_pair() {
    const UniqueFd listener = listening_socket(loopback4());
    Ends ends;
    ends.theirs = connected_to(address_of(listener.get()));
    ends.ours = UniqueFd{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!ends.ours) {
        throw std::runtime_error{std::string{"accept4: "} + std::strerror(errno)};
    }
    return ends;
}

inline bool send_text(int fd, std::string_view text) {
    return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// The other end has been closed (or shut down) by everybody who had it.
inline bool at_end(int fd) {
    char byte = 0;
    return soon([&] {
        const ssize_t got = ::recv(fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
        return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    });
}

// A connection on which nothing has come, and which is still open.
inline bool silent(int fd) {
    char byte = 0;
    return ::recv(fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

// What has come on a connection, up to 256 bytes.
inline std::string text_in(int fd) {
    char buffer[256];
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    return {buffer, size > 0 ? static_cast<std::size_t>(size) : 0};
}

}  // namespace cede::tests
