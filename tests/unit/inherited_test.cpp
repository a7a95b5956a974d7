// SPDX-License-Identifier: Apache-2.0
#include "pm/inherited.h"

#include <fcntl.h>
#include <functional>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

// Descriptors as a service manager hands them over: from 3 on, not close-on-exec. Must run in a process of
// its own.
void hand_over(const std::vector<int>& fds, int first) {
    std::vector<int> moved;
    for (const int fd : fds) {
        moved.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, 100));
    }
    for (std::size_t i = 0; i < moved.size(); ++i) {
        ::dup2(moved[i], first + static_cast<int>(i));
    }
}

std::string adopted_from(std::expected<OpenedListeners, Error> opened) {
    if (!opened) {
        return opened.error().message;
    }
    std::string text;
    for (const Listener& listener : opened->listeners) {
        text += listener.name + (listener.created ? " created" : " inherited") +
                (listener.nonblocking_before ? " nonblocking" : " blocking") + " fd " +
                std::to_string(listener.fd.get()) + " backlog " + std::to_string(listener.backlog_asked) +
                "/" + std::to_string(listener.backlog_granted) + "\n";
    }
    for (const std::string& warning : opened->warnings) {
        text += warning + "\n";
    }
    return text;
}

// What open_listeners() says to these descriptors from 3 on.
std::string from_systemd(const std::vector<int>& fds, const char* listen_fds, bool for_us = true) {
    return in_child([&] {
        hand_over(fds, 3);
        // Nothing may follow that the number could count by accident.
        for (int fd = 3 + static_cast<int>(fds.size()); fd < 20; ++fd) {
            ::close(fd);
        }
        const std::string pid = std::to_string(for_us ? ::getpid() : ::getpid() + 1);
        return adopted_from(open_listeners({}, ::getpid(), pid.c_str(), listen_fds));
    });
}

// What open_listeners() says to this descriptor 0; -1: closed.
std::string from_descriptor_0(int fd) {
    return in_child([&] {
        if (fd < 0) {
            ::close(0);
        } else {
            ::dup2(fd, 0);
        }
        return adopted_from(open_listeners({}, ::getpid(), nullptr, nullptr));
    });
}

void check_has(const std::string& text, std::string_view part) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
}

// Descriptors that are no listening socket, each with what is said of it.
struct Unfit {
    UniqueFd fd;
    std::string objection;
};

std::vector<Unfit> unfit_descriptors(const TempDirectory& directory, std::vector<UniqueFd>& kept) {
    std::vector<Unfit> unfit;
    unfit.push_back({UniqueFd{::open("/dev/null", O_RDWR | O_CLOEXEC)}, "is not a socket"});
    unfit.push_back({bound_socket(loopback4(), SOCK_DGRAM), "wrong type (a datagram socket"});
    unfit.push_back(
        {bound_socket(unix_address(directory.path("p")), SOCK_SEQPACKET), "wrong type (a packet socket"});
    unfit.push_back({bound_socket(loopback4()), "does not listen"});
    unfit.push_back({bound_socket(unix_address(directory.path("n"))), "does not listen"});
    kept.push_back(listening_socket(unix_address(directory.path("l"))));
    unfit.push_back({connected_to(unix_address(directory.path("l"))), "is a connection"});
    UniqueFd other{::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    unfit.push_back({std::move(other), "wrong type"});
    return unfit;
}

}  // namespace

TEST_CASE("the listening sockets of systemd are adopted, of every family, with their own backlog") {
    const TempDirectory directory;
    const UniqueFd four = listening_socket(loopback4(), 11);
    const UniqueFd six = listening_socket(loopback6(), 12);
    const UniqueFd file = listening_socket(unix_address(directory.path("s")), 13);
    const std::string text = from_systemd({four.get(), six.get(), file.get()}, "3");
    check_has(text, "127.0.0.1:");
    check_has(text, " inherited blocking fd 3 backlog 11/11\n[::1]:");
    check_has(text, " inherited blocking fd 4 backlog 12/12\n" + directory.path("s"));
    check_has(text, " inherited blocking fd 5 backlog 13/13\n");
}

TEST_CASE("an adopted socket is close-on-exec and non-blocking, and is given back as it came") {
    const UniqueFd listener = listening_socket(loopback4());
    const std::string result = in_child([&] {
        hand_over({listener.get()}, 3);
        const std::string pid = std::to_string(::getpid());
        auto opened = open_listeners({}, ::getpid(), pid.c_str(), "1");
        if (!opened) {
            return opened.error().message;
        }
        Listener& adopted = opened->listeners[0];
        int nodelay = 0;
        socklen_t length = sizeof nodelay;
        ::getsockopt(adopted.fd.get(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &length);
        const bool ready = (::fcntl(3, F_GETFD) & FD_CLOEXEC) != 0 && (::fcntl(3, F_GETFL) & O_NONBLOCK) != 0;
        adopted.restore_flags();
        adopted.remove_socket_file();
        const bool restored = (::fcntl(3, F_GETFL) & O_NONBLOCK) == 0;
        return std::string{ready && restored && nodelay != 0 ? "right" : "wrong"};
    });
    CHECK(result == "right");
    // The flag is shared, so that it shows in the one who handed the socket over.
    CHECK((::fcntl(listener.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("a socket that came non-blocking stays so") {
    const UniqueFd listener = listening_socket(loopback4());
    REQUIRE(::fcntl(listener.get(), F_SETFL, O_NONBLOCK) == 0);
    check_has(from_systemd({listener.get()}, "1"), " inherited nonblocking");
    const std::string result = in_child([&] {
        ::dup2(listener.get(), 0);
        auto opened = open_listeners({}, ::getpid(), nullptr, nullptr);
        opened->listeners[0].restore_flags();
        return std::string{};
    });
    CHECK(result.empty());
    CHECK((::fcntl(listener.get(), F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("an inherited socket file is never removed") {
    const TempDirectory directory;
    const UniqueFd listener = listening_socket(unix_address(directory.path("s")));
    CHECK(in_child([&] {
              ::dup2(listener.get(), 0);
              auto opened = open_listeners({}, ::getpid(), nullptr, nullptr);
              opened->listeners[0].remove_socket_file();
              return std::string{};
          }).empty());
    UniqueFd client;
    CHECK(try_connect(unix_address(directory.path("s")), client) == 0);
}

TEST_CASE(
    "each descriptor of systemd's that is no listening socket is named with the reason, and nothing is "
    "changed") {
    const TempDirectory directory;
    std::vector<UniqueFd> kept;
    const UniqueFd good = listening_socket(loopback4());
    for (const Unfit& unfit : unfit_descriptors(directory, kept)) {
        const std::string text = from_systemd({good.get(), unfit.fd.get()}, "2");
        check_has(text, "LISTEN_FDS in the environment is 2, but descriptor 4 is ");
        check_has(text, unfit.objection);
        check_has(text, "--listen");
        CHECK((::fcntl(good.get(), F_GETFL) & O_NONBLOCK) == 0);
    }
    check_has(from_systemd({good.get()}, "2"), "descriptor 4 is not open");
}

TEST_CASE("a LISTEN_FDS that is no sensible number is refused") {
    const UniqueFd good = listening_socket(loopback4());
    for (const char* bad : {"", "0", "-1", "one", "1x", "65", "4294967297", "99999999999999999999"}) {
        CAPTURE(bad);
        check_has(from_systemd({good.get()}, bad), "LISTEN_FDS in the environment: '");
    }
}

TEST_CASE(
    "descriptors that are for another process are not ours, and that is said when nothing else is there") {
    const UniqueFd good = listening_socket(loopback4());
    const std::string text = from_systemd({good.get()}, "1", false);
    check_has(text, "there is nothing to listen on");
    check_has(text, "LISTEN_FDS is for process '");
}

TEST_CASE("the listening socket on descriptor 0 is moved away and /dev/null takes its place") {
    const TempDirectory directory;
    const UniqueFd four = listening_socket(loopback4());
    const UniqueFd file = listening_socket(unix_address(directory.path("s")));
    check_has(from_descriptor_0(four.get()), "127.0.0.1:");
    check_has(from_descriptor_0(file.get()), directory.path("s") + " inherited blocking");
    const std::string result = in_child([&] {
        ::dup2(file.get(), 0);
        const auto opened = open_listeners({}, ::getpid(), nullptr, nullptr);
        struct stat null {};
        struct stat zero {};
        ::stat("/dev/null", &null);
        ::fstat(0, &zero);
        const int fd = opened->listeners[0].fd.get();
        const bool right = fd > 2 && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 &&
                           zero.st_rdev == null.st_rdev && S_ISCHR(zero.st_mode) && ::fcntl(0, F_GETFD) == 0;
        return std::string{right ? "right" : "wrong"};
    });
    CHECK(result == "right");
}

TEST_CASE("without anything to listen on, the message says why and names the three ways") {
    const TempDirectory directory;
    std::vector<UniqueFd> kept;
    for (const Unfit& unfit : unfit_descriptors(directory, kept)) {
        const std::string text = from_descriptor_0(unfit.fd.get());
        check_has(text, "no --listen, no LISTEN_FDS, and descriptor 0 is ");
        check_has(text, unfit.objection);
        check_has(text, "--listen 127.0.0.1:9000");
        check_has(text, "systemd");
        check_has(text, "descriptor 0");
    }
    check_has(from_descriptor_0(-1), "descriptor 0 is not open");
}

TEST_CASE("--listen goes before systemd's sockets, with a warning") {
    const UniqueFd given = listening_socket(loopback4());
    const std::string text = in_child([&] {
        hand_over({given.get()}, 3);
        Config config;
        config.listen = {"127.0.0.1:0"};
        const std::string pid = std::to_string(::getpid());
        return adopted_from(open_listeners(config, ::getpid(), pid.c_str(), "1"));
    });
    check_has(text, " created");
    check_has(text, "LISTEN_FDS");
    CHECK(text.find("inherited") == std::string::npos);
}
