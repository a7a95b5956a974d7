// SPDX-License-Identifier: Apache-2.0
#include "pm/queue_depth.h"

#include <array>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::tests;
using cede::pm::QueueDepth;
using Source = cede::pm::QueueDepth::Source;

namespace {

constexpr int backlog = 37;

struct Family {
    std::string name;
    std::function<SocketAddress()> address;
};

std::vector<Family> families(const TempDirectory& directory) {
    return {{"tcp4", [] { return loopback4(); }},
            {"tcp6", [] { return loopback6(); }},
            {"unix", [&directory] { return unix_address(directory.path("s")); }}};
}

// A listener with connections that nobody accepts.
class Queue {
  public:
    explicit Queue(const SocketAddress& address) : listener_{listening_socket(address, backlog)} {}

    void add_one() { clients_.push_back(connected_to(address_of(listener_.get()))); }
    void accept_one() { accepted_.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    [[nodiscard]] int fd() const { return listener_.get(); }

  private:
    UniqueFd listener_;
    std::vector<UniqueFd> clients_;
    std::vector<UniqueFd> accepted_;
};

// TCP's last step of a connect may come a moment after connect(2) has returned.
bool soon_reads(QueueDepth& depth, unsigned waiting) {
    return soon([&] {
        const auto reading = depth.read();
        return reading && reading->waiting == waiting;
    });
}

void counts_up_and_down(int fd_family, Source source, const SocketAddress& address) {
    CAPTURE(fd_family);
    CAPTURE(to_string(source));
    Queue queue{address};
    QueueDepth depth{queue.fd(), source};
    CHECK(soon_reads(depth, 0));
    for (unsigned waiting = 1; waiting <= 5; ++waiting) {
        queue.add_one();
        CHECK(soon_reads(depth, waiting));
    }
    for (unsigned waiting = 5; waiting-- > 0;) {
        queue.accept_one();
        CHECK(soon_reads(depth, waiting));
    }
    CHECK(depth.source() == source);
}

}  // namespace

TEST_CASE("TCP_INFO counts the connections that wait on a TCP listener of either family, and the backlog") {
    for (const auto& address : {loopback4(), loopback6()}) {
        counts_up_and_down(address.storage.ss_family, Source::tcp_info, address);
    }
    Queue queue{loopback4()};
    CHECK(QueueDepth{queue.fd(), Source::tcp_info}.read()->backlog == backlog);
}

TEST_CASE("sock_diag counts the connections that wait on a Unix listener, and the backlog") {
    const TempDirectory directory;
    counts_up_and_down(AF_UNIX, Source::sock_diag, unix_address(directory.path("s")));
    Queue queue{unix_address(directory.path("t"))};
    CHECK(QueueDepth{queue.fd(), Source::sock_diag}.read()->backlog == backlog);
}

TEST_CASE("sock_diag tells two Unix listeners apart") {
    const TempDirectory directory;
    Queue one{unix_address(directory.path("one"))};
    Queue two{unix_address(directory.path("two"))};
    two.add_one();
    two.add_one();
    QueueDepth of_one{one.fd(), Source::sock_diag};
    QueueDepth of_two{two.fd(), Source::sock_diag};
    CHECK(of_one.read()->waiting == 0);
    CHECK(of_two.read()->waiting == 2);
    CHECK(of_one.read()->waiting == 0);
}

TEST_CASE("/proc/net/tcp and /proc/net/tcp6 count the connections that wait, without a backlog") {
    for (const auto& address : {loopback4(), loopback6()}) {
        counts_up_and_down(address.storage.ss_family, Source::proc_net_tcp, address);
    }
    Queue queue{loopback6()};
    CHECK_FALSE(QueueDepth{queue.fd(), Source::proc_net_tcp}.read()->backlog.has_value());
}

TEST_CASE("/proc/net/tcp is read on when the line is not in the first piece of the file") {
    std::vector<UniqueFd> others;
    for (int i = 0; i < 300; ++i) {
        others.push_back(listening_socket(loopback4()));
    }
    for (const int picked : {0, 100, 200, 299}) {
        const int fd = others[static_cast<std::size_t>(picked)].get();
        const UniqueFd client = connected_to(address_of(fd));
        QueueDepth depth{fd, Source::proc_net_tcp};
        CHECK(soon_reads(depth, 1));
        CHECK(depth.source() == Source::proc_net_tcp);
    }
}

TEST_CASE("readiness says 0 or 1 for every family") {
    const TempDirectory directory;
    for (const Family& family : families(directory)) {
        CAPTURE(family.name);
        Queue queue{family.address()};
        QueueDepth depth{queue.fd(), Source::readiness};
        CHECK(soon_reads(depth, 0));
        queue.add_one();
        CHECK(soon_reads(depth, 1));
        queue.add_one();
        CHECK(soon_reads(depth, 1));
        queue.accept_one();
        CHECK(soon_reads(depth, 1));
        queue.accept_one();
        CHECK(soon_reads(depth, 0));
        CHECK(depth.source() == Source::readiness);
    }
}

TEST_CASE("the best source of each family is found and counts") {
    const TempDirectory directory;
    for (const Family& family : families(directory)) {
        CAPTURE(family.name);
        Queue queue{family.address()};
        queue.add_one();
        queue.add_one();
        QueueDepth depth = QueueDepth::best_for(queue.fd());
        CHECK(depth.source() == (family.name == "unix" ? Source::sock_diag : Source::tcp_info));
        CHECK(soon_reads(depth, 2));
        CHECK(depth.read()->backlog == backlog);
    }
}

TEST_CASE("a source that does not know the socket is left for the next one that does, within one call") {
    const TempDirectory directory;
    struct Row {
        SocketAddress address;
        Source asked;
        Source used;
    };
    const std::vector<Row> rows{
        {loopback4(), Source::sock_diag, Source::proc_net_tcp},
        {loopback6(), Source::sock_diag, Source::proc_net_tcp},
        {unix_address(directory.path("a")), Source::tcp_info, Source::sock_diag},
        {unix_address(directory.path("b")), Source::proc_net_tcp, Source::readiness},
    };
    for (const Row& row : rows) {
        CAPTURE(to_string(row.asked));
        Queue queue{row.address};
        queue.add_one();
        QueueDepth depth{queue.fd(), row.asked};
        CHECK(soon_reads(depth, 1));
        CHECK(depth.source() == row.used);
    }
}

TEST_CASE("a full queue is counted beyond the backlog, as the kernel admits one more") {
    const TempDirectory directory;
    const UniqueFd listener = listening_socket(unix_address(directory.path("s")), 2);
    std::vector<UniqueFd> clients;
    for (UniqueFd client; try_connect(unix_address(directory.path("s")), client) == 0;) {
        clients.push_back(std::move(client));
        REQUIRE(clients.size() < 10);
    }
    QueueDepth depth = QueueDepth::best_for(listener.get());
    const auto reading = depth.read();
    REQUIRE(reading.has_value());
    CHECK(reading->waiting == clients.size());
    CHECK(reading->backlog == 2);
}

TEST_CASE("what is no listening socket gives no reading, whatever source is asked first") {
    const TempDirectory directory;
    std::array<int, 2> pipe_ends{};
    std::array<int, 2> pair{};
    REQUIRE(::pipe2(pipe_ends.data(), O_CLOEXEC) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
    const UniqueFd read_end{pipe_ends[0]};
    const UniqueFd write_end{pipe_ends[1]};
    const UniqueFd one{pair[0]};
    const UniqueFd two{pair[1]};
    const UniqueFd datagram = bound_socket(loopback4(), SOCK_DGRAM);
    const UniqueFd not_listening = bound_socket(loopback4());
    const UniqueFd unix_not_listening = bound_socket(unix_address(directory.path("s")));
    const UniqueFd listener = listening_socket(loopback4());
    const UniqueFd connection = connected_to(address_of(listener.get()));
    REQUIRE(::write(two.get(), "x", 1) == 1);  // readable, and yet no queue
    for (const int fd : {read_end.get(), one.get(), datagram.get(), not_listening.get(),
                         unix_not_listening.get(), connection.get(), -1, 1000000}) {
        for (const Source source :
             {Source::tcp_info, Source::sock_diag, Source::proc_net_tcp, Source::readiness}) {
            CAPTURE(fd);
            CAPTURE(to_string(source));
            QueueDepth depth{fd, source};
            CHECK_FALSE(depth.read().has_value());
            CHECK(depth.source() == Source::readiness);
            CHECK_FALSE(depth.read().has_value());
        }
    }
}

TEST_CASE("a reader can be moved and goes on counting") {
    const TempDirectory directory;
    Queue queue{unix_address(directory.path("s"))};
    QueueDepth first = QueueDepth::best_for(queue.fd());
    queue.add_one();
    QueueDepth second{std::move(first)};
    CHECK(soon_reads(second, 1));
}
