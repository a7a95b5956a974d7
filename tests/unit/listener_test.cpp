// SPDX-License-Identifier: Apache-2.0
#include "pm/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

std::expected<OpenedListeners, Error> open_at(std::vector<std::string> addresses, int backlog = 511) {
    Config config;
    config.listen = std::move(addresses);
    config.backlog = backlog;
    return open_listeners(config, ::getpid(), nullptr, nullptr);
}

int option_of(int fd, int level, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

std::uint16_t port_of(const Listener& listener) {
    return static_cast<std::uint16_t>(std::stoul(listener.name.substr(listener.name.rfind(':') + 1)));
}

bool serves(const SocketAddress& address) {
    const UniqueFd client{::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    return ::connect(client.get(), address.get(), address.length) == 0;
}

int somaxconn() {
    int value = 0;
    std::ifstream{"/proc/sys/net/core/somaxconn"} >> value;
    return value;
}

std::string joined(const std::vector<std::string>& warnings) {
    std::string text;
    for (const std::string& warning : warnings) {
        text += warning + '\n';
    }
    return text;
}

void check_refused(const std::vector<std::string>& addresses, std::string_view part) {
    CAPTURE(addresses.back());
    const auto opened = open_at(addresses);
    REQUIRE_FALSE(opened.has_value());
    CAPTURE(opened.error().message);
    CHECK(opened.error().message.starts_with("--listen: "));
    CHECK(opened.error().message.find(part) != std::string::npos);
}

// From here on this process can make no IPv6 socket, as on a machine booted with ipv6.disable=1.
bool forbid_ipv6() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof code / sizeof code[0], code};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("TCP listeners of both families have the options that accepted sockets inherit, and serve") {
    const auto opened = open_at({"127.0.0.1:0", "[::1]:0"});
    REQUIRE(opened.has_value());
    REQUIRE(opened->listeners.size() == 2);
    CHECK(opened->warnings.empty());
    for (const Listener& listener : opened->listeners) {
        CAPTURE(listener.name);
        const int fd = listener.fd.get();
        CHECK(option_of(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1);
        CHECK(option_of(fd, SOL_SOCKET, SO_REUSEADDR) == 1);
        CHECK(option_of(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
        CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
        CHECK(fd > 2);
        CHECK(listener.created);
        CHECK(listener.backlog_asked == 511);
        CHECK(listener.backlog_granted == std::min(511, somaxconn()));
        CHECK(serves(address_of(fd)));
    }
    CHECK(opened->listeners[0].kind == Listener::Kind::tcp4);
    CHECK(opened->listeners[0].name.starts_with("127.0.0.1:"));
    CHECK(opened->listeners[1].kind == Listener::Kind::tcp6);
    CHECK(opened->listeners[1].name.starts_with("[::1]:"));
    CHECK(option_of(opened->listeners[1].fd.get(), IPPROTO_IPV6, IPV6_V6ONLY) == 1);
}

TEST_CASE("a given port is taken") {
    const auto opened = open_at({"127.0.0.1:21100", "[::1]:21100"});
    REQUIRE(opened.has_value());
    CHECK(opened->listeners[0].name == "127.0.0.1:21100");
    CHECK(opened->listeners[1].name == "[::1]:21100");
    CHECK(serves(loopback4(21100)));
    CHECK(serves(loopback6(21100)));
}

TEST_CASE("* serves both families on one socket and warns of its openness") {
    const auto opened = open_at({"*:0"});
    REQUIRE(opened.has_value());
    REQUIRE(opened->listeners.size() == 1);
    const Listener& listener = opened->listeners[0];
    CHECK(listener.name.starts_with("*:"));
    CHECK(option_of(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY) == 0);
    CHECK(serves(loopback4(port_of(listener))));
    CHECK(serves(loopback6(port_of(listener))));
    CHECK(joined(opened->warnings).find("whoever can reach this port") != std::string::npos);
    CHECK(joined(open_at({"0.0.0.0:0"})->warnings).find("whoever can reach") != std::string::npos);
    CHECK(joined(open_at({"[::]:0"})->warnings).find("whoever can reach") != std::string::npos);
}

TEST_CASE("localhost is both loopback addresses with one port") {
    const auto opened = open_at({"localhost:0"});
    REQUIRE(opened.has_value());
    REQUIRE(opened->listeners.size() == 2);
    CHECK(port_of(opened->listeners[0]) == port_of(opened->listeners[1]));
    CHECK(serves(loopback4(port_of(opened->listeners[0]))));
    CHECK(serves(loopback6(port_of(opened->listeners[0]))));
}

TEST_CASE("without IPv6 * and localhost serve IPv4 and say so, and an IPv6 address is refused") {
    const std::string result = in_child([] {
        if (!forbid_ipv6()) {
            return std::string{"seccomp is not available"};
        }
        std::string text;
        for (const char* address : {"*:0", "localhost:0", "[::1]:0"}) {
            const auto opened = open_at({address});
            text += address;
            text += !opened ? " " + opened.error().message
                            : " " + std::to_string(opened->listeners.size()) +
                                  (serves(loopback4(port_of(opened->listeners[0]))) ? " served "
                                                                                    : " not served ") +
                                  joined(opened->warnings);
            text += "\n";
        }
        return text;
    });
    CAPTURE(result);
    CHECK(result.find("*:0 1 served") != std::string::npos);
    CHECK(result.find("only IPv4 is served") != std::string::npos);
    CHECK(result.find("localhost:0 1 served") != std::string::npos);
    CHECK(result.find("only 127.0.0.1 is served") != std::string::npos);
    CHECK(result.find("[::1]:0 --listen: [::1]:0: this machine has no IPv6") != std::string::npos);
}

TEST_CASE("a TCP address that can not be had is named with the reason") {
    const UniqueFd holder = listening_socket(loopback4(21101));
    check_refused({"127.0.0.1:21101"}, "127.0.0.1:21101: another socket listens there already");
    check_refused({"127.0.0.1:21101"}, "ss -ltnp 'sport = :21101'");
    check_refused({"*:21101"}, "another socket listens there already");
    check_refused({"203.0.113.77:21102"}, "no interface of this machine");
    check_refused({"[2001:db8::77]:21102"}, "no interface of this machine");
    check_refused({"example.org:21102"}, "no name server");
    check_refused({"127.0.0.1:21103", "127.0.0.1:21103"}, "another socket listens there already");
}

TEST_CASE("a port that only root may take is named as such" * doctest::skip(::geteuid() != 0)) {
    int first_free = 0;
    std::ifstream{"/proc/sys/net/ipv4/ip_unprivileged_port_start"} >> first_free;
    if (first_free <= 1) {
        MESSAGE("every port is free for everybody here");
        return;
    }
    const std::string message = in_child([] {
        if (::setgid(4000000) != 0 || ::setuid(4000000) != 0) {
            return std::string{"setuid failed"};
        }
        const auto opened = open_at({"127.0.0.1:1"});
        return opened ? "listens" : opened.error().message;
    });
    CAPTURE(message);
    CHECK(message.find("127.0.0.1:1: ports below 1024 are for root") != std::string::npos);
}

TEST_CASE("a port whose last connections are in TIME_WAIT is taken again") {
    UniqueFd client;
    {
        const auto opened = open_at({"127.0.0.1:21104"});
        REQUIRE(opened.has_value());
        client = connected_to(loopback4(21104));
        int accepted = -1;
        REQUIRE(soon(
            [&] { return (accepted = ::accept(opened->listeners[0].fd.get(), nullptr, nullptr)) >= 0; }));
        ::close(accepted);  // first, so that this side gets the TIME_WAIT
    }
    client.reset();
    CHECK(open_at({"127.0.0.1:21104"}).has_value());
}

TEST_CASE("a socket file is served, described and removed") {
    const TempDirectory directory;
    auto opened = open_at({"unix:" + directory.path("s")});
    REQUIRE(opened.has_value());
    Listener& listener = opened->listeners[0];
    CHECK(listener.kind == Listener::Kind::unix_stream);
    CHECK(listener.name == directory.path("s"));
    CHECK(listener.path == directory.path("s"));
    CHECK(listener.access.starts_with("mode 0660, owner "));
    CHECK(listener.backlog_granted == std::min(511, somaxconn()));
    CHECK(serves(unix_address(directory.path("s"))));
    listener.remove_socket_file();
    CHECK_FALSE(serves(unix_address(directory.path("s"))));
    struct stat status {};
    CHECK(::lstat(directory.path("s").c_str(), &status) != 0);
}

TEST_CASE("a socket file that was replaced, and one that everybody can use, are worth a warning") {
    const TempDirectory directory;
    static_cast<void>(listening_socket(unix_address(directory.path("s"))));
    Config config;
    config.listen = {directory.path("s")};
    config.listen_mode = 0666;
    const auto opened = open_listeners(config, ::getpid(), nullptr, nullptr);
    REQUIRE(opened.has_value());
    CHECK(joined(opened->warnings).find("replaced a socket file") != std::string::npos);
    CHECK(joined(opened->warnings).find("every user of this machine can connect") != std::string::npos);
}

TEST_CASE("a socket file of root's belongs to the group of --user, unless told otherwise" *
          doctest::skip(::geteuid() != 0)) {
    const TempDirectory directory;
    struct stat status {};
    Config config;
    config.listen = {directory.path("s")};
    config.user = "daemon";
    {
        const auto opened = open_listeners(config, ::getpid(), nullptr, nullptr);
        REQUIRE(::stat(directory.path("s").c_str(), &status) == 0);
        CHECK(status.st_uid == 0);
        CHECK(status.st_gid == 1);
        CHECK(opened->listeners[0].access == "mode 0660, owner root, group daemon");
    }
    config.listen_owner = "4000000";
    config.listen_group = "4000001";
    {
        const auto opened = open_listeners(config, ::getpid(), nullptr, nullptr);
        REQUIRE(::stat(directory.path("s").c_str(), &status) == 0);
        CHECK(status.st_uid == 4000000);
        CHECK(status.st_gid == 4000001);
    }
    config.listen_group = "nosuchgroup";
    const auto refused = open_listeners(config, ::getpid(), nullptr, nullptr);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("no group 'nosuchgroup'") != std::string::npos);
}

TEST_CASE("a backlog that the kernel cuts is told with both numbers and the setting's name") {
    const TempDirectory directory;
    const int most = somaxconn();
    REQUIRE(most > 0);
    REQUIRE(most < 1000000);
    for (const std::string& address :
         {std::string{"127.0.0.1:0"}, std::string{"[::1]:0"}, directory.path("s")}) {
        CAPTURE(address);
        const auto opened = open_at({address}, most + 1);
        REQUIRE(opened.has_value());
        CHECK(opened->listeners[0].backlog_asked == most + 1);
        CHECK(opened->listeners[0].backlog_granted == most);
        const std::string warnings = joined(opened->warnings);
        CHECK(warnings.find("from " + std::to_string(most + 1) + " to " + std::to_string(most)) !=
              std::string::npos);
        CHECK(warnings.find("net.core.somaxconn") != std::string::npos);
        CHECK(open_at({"127.0.0.1:0"}, most)->warnings.empty());
    }
}

TEST_CASE("when one address fails, the socket files of the others are gone again") {
    const TempDirectory directory;
    const UniqueFd holder = listening_socket(loopback4(21105));
    check_refused({directory.path("a"), directory.path("b"), "127.0.0.1:21105"}, "another socket listens");
    struct stat status {};
    CHECK(::lstat(directory.path("a").c_str(), &status) != 0);
    CHECK(::lstat(directory.path("b").c_str(), &status) != 0);
}

TEST_CASE("an address from a file is reported with its line") {
    const TempDirectory directory;
    Config config;
    config.listen = {directory.path("no/s")};
    config.origins["listen " + config.listen[0]] = "cede.conf:4: listen";
    const auto refused = open_listeners(config, ::getpid(), nullptr, nullptr);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.starts_with("cede.conf:4: listen: " + directory.path("no/s")));
}

TEST_CASE("a listener never lands on descriptors 0 to 2") {
    const TempDirectory directory;
    const std::string result = in_child([&] {
        ::close(0);
        ::close(1);
        ::close(2);
        const auto opened = open_at({"127.0.0.1:0", directory.path("s")});
        if (!opened) {
            return opened.error().message;
        }
        const bool above =
            std::ranges::all_of(opened->listeners, [](const Listener& l) { return l.fd.get() > 2; });
        return std::string{above && ::fcntl(0, F_GETFD) == -1 ? "above" : "below"};
    });
    CHECK(result == "above");
}

TEST_CASE("a backlog is set anew while the socket listens; an inherited one only by who says so") {
    for (const bool created : {true, false}) {
        CAPTURE(created);
        Listener listener;
        listener.fd = listening_socket(loopback4(), 64);
        listener.created = created;
        listener.backlog_asked = listener.backlog_granted = 64;
        listener.set_backlog(32);
        CHECK(listener.backlog_granted == (created ? 32 : 64));
        listener.set_backlog(40, Listener::Whose::anybodys);
        CHECK(listener.backlog_asked == 40);
        CHECK(listener.backlog_granted == 40);
    }
    CHECK(most_granted() == static_cast<unsigned>(somaxconn()));
}
