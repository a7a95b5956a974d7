// SPDX-License-Identifier: Apache-2.0
#include "children/fd_passing.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/descriptors.h"

using namespace cede::children;
using cede::tests::closes_on_exec;
using cede::tests::descriptors_of;
using cede::tests::Ends;
using cede::tests::pipe_pair;
using cede::tests::socket_pair;
using cede::tests::soon;

namespace {

// Ordinary code of the kernel's interface, for what send_message() refuses to send.
void send_with_descriptors(int socket, const std::vector<int>& fds, std::string text = "text") {
    iovec part{text.data(), text.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
    REQUIRE(sendmsg(socket, &message, 0) == static_cast<ssize_t>(text.size()));
}

Received receive(int socket, std::string& text, std::size_t room = 64) {
    text.assign(room, '\0');
    const Received received = receive_message(socket, text.data(), room, false);
    text.resize(std::min(received.size, room));
    return received;
}

}  // namespace

TEST_CASE("a message arrives whole, with its descriptor, which is close-on-exec") {
    const Ends channel = socket_pair();
    Ends pipe = pipe_pair();
    REQUIRE(send_message(channel.ours.get(), "hello", 5, pipe.theirs.get()));
    pipe.theirs.reset();
    std::string text;
    const Received received = receive(channel.theirs.get(), text);
    UniqueFd arrived{received.fd};
    CHECK(received.kind == Received::Kind::message);
    CHECK(text == "hello");
    REQUIRE(arrived);
    CHECK(closes_on_exec(arrived.get()));
    CHECK(::write(arrived.get(), "x", 1) == 1);
    char byte = 0;
    CHECK(::read(pipe.ours.get(), &byte, 1) == 1);
    CHECK(byte == 'x');
}

TEST_CASE("a message without a descriptor brings none") {
    const Ends channel = socket_pair();
    REQUIRE(send_message(channel.ours.get(), "hello", 5, -1));
    std::string text;
    const Received received = receive(channel.theirs.get(), text);
    CHECK(received.kind == Received::Kind::message);
    CHECK(received.size == 5);
    CHECK(received.fd == -1);
}

TEST_CASE("of several descriptors in a message the first is kept and the others are closed") {
    for (const std::size_t count : {2U, 3U, 4U, 7U, 40U}) {
        CAPTURE(count);
        const Ends channel = socket_pair();
        Ends pipe = pipe_pair();
        send_with_descriptors(channel.ours.get(), std::vector<int>(count, pipe.theirs.get()));
        pipe.theirs.reset();
        const auto before = descriptors_of().size();
        std::string text;
        UniqueFd arrived{receive(channel.theirs.get(), text).fd};
        CHECK(text == "text");
        REQUIRE(arrived);
        CHECK(descriptors_of().size() == before + 1);
        arrived.reset();
        // Nobody holds the writing end any more.
        char byte = 0;
        CHECK(::read(pipe.ours.get(), &byte, 1) == 0);
    }
}

TEST_CASE("two descriptors arrive in their order where two are expected, and others are closed") {
    const Ends channel = socket_pair();
    Ends one = pipe_pair();
    Ends other = pipe_pair();
    REQUIRE(send_message(channel.ours.get(), "hello", 5, one.theirs.get(), other.theirs.get()));
    send_with_descriptors(channel.ours.get(), std::vector<int>(4, one.theirs.get()));
    REQUIRE(send_message(channel.ours.get(), "hello", 5, one.theirs.get()));
    one.theirs.reset();
    other.theirs.reset();
    char text[8];
    int second = 99;
    const auto before = descriptors_of().size();
    {
        const UniqueFd first{receive_message(channel.theirs.get(), text, sizeof text, false, &second).fd};
        const UniqueFd behind{second};
        REQUIRE(behind);
        CHECK(closes_on_exec(behind.get()));
        CHECK(::write(first.get(), "1", 1) == 1);
        CHECK(::write(behind.get(), "2", 1) == 1);
        char byte = 0;
        CHECK(::read(one.ours.get(), &byte, 1) == 1);
        CHECK(byte == '1');
        CHECK(::read(other.ours.get(), &byte, 1) == 1);
        CHECK(byte == '2');
    }
    {
        const UniqueFd first{receive_message(channel.theirs.get(), text, sizeof text, false, &second).fd};
        const UniqueFd behind{second};
        CHECK(descriptors_of().size() == before + 2);
    }
    const UniqueFd first{receive_message(channel.theirs.get(), text, sizeof text, false, &second).fd};
    CHECK(first);
    CHECK(second == -1);
    CHECK(receive_message(channel.theirs.get(), text, sizeof text, false, &second).fd == -1);
    CHECK(second == -1);
}

TEST_CASE("messages keep their borders and their order") {
    const Ends channel = socket_pair();
    for (const std::string text : {"a", "bb", "ccc"}) {
        REQUIRE(send_message(channel.ours.get(), text.data(), text.size(), -1));
    }
    std::string text;
    for (const std::string_view expected : {"a", "bb", "ccc"}) {
        CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::message);
        CHECK(text == expected);
    }
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::nothing);
    CHECK(errno == EAGAIN);
}

TEST_CASE("a peer that has closed is told from one that says nothing") {
    Ends channel = socket_pair();
    std::string text;
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::nothing);
    REQUIRE(send_message(channel.ours.get(), "last", 4, -1));
    channel.ours.reset();
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::message);
    CHECK(text == "last");
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::closed);
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::closed);
}

TEST_CASE("sending to a peer that has closed fails without a signal") {
    Ends channel = socket_pair();
    channel.theirs.reset();
    CHECK_FALSE(send_message(channel.ours.get(), "x", 1, -1));
    CHECK(errno == EPIPE);
}

TEST_CASE("a peer that has closed with messages of ours unread is closed, or an error, but no message") {
    Ends channel = socket_pair();
    REQUIRE(send_message(channel.theirs.get(), "unread", 6, -1));
    channel.ours.reset();
    std::string text;
    const Received received = receive(channel.theirs.get(), text);
    CHECK((received.kind == Received::Kind::closed || received.kind == Received::Kind::failed));
}

TEST_CASE("sending never blocks: a full queue is an error that says so") {
    const Ends channel = socket_pair();
    const std::string big(1000, 'x');
    int sent = 0;
    while (sent < 100000 && send_message(channel.ours.get(), big.data(), big.size(), -1)) {
        ++sent;
    }
    CHECK(errno == EAGAIN);
    CHECK(sent > 0);
    CHECK(sent < 100000);
}

TEST_CASE("a message that is longer than expected can be told from one that fits") {
    const Ends channel = socket_pair();
    Ends pipe = pipe_pair();
    REQUIRE(send_message(channel.ours.get(), "twelve bytes", 12, pipe.theirs.get()));
    REQUIRE(send_message(channel.ours.get(), "next", 4, -1));
    std::string text;
    const Received received = receive(channel.theirs.get(), text, 8);
    const UniqueFd arrived{received.fd};
    CHECK(text == "twelve b");
    CHECK(received.size != 8);
    CHECK(arrived);
    CHECK(receive(channel.theirs.get(), text, 8).kind == Received::Kind::message);
    CHECK(text == "next");
}

TEST_CASE("what is no socket, or not open, is refused by the kernel's name for it") {
    const Ends pipe = pipe_pair();
    std::string text;
    CHECK_FALSE(send_message(pipe.theirs.get(), "x", 1, -1));
    CHECK(errno == ENOTSOCK);
    CHECK(receive(pipe.ours.get(), text).kind == Received::Kind::failed);
    CHECK(errno == ENOTSOCK);
    CHECK_FALSE(send_message(-1, "x", 1, -1));
    CHECK(errno == EBADF);
    CHECK(receive(-1, text).kind == Received::Kind::failed);
    const Ends channel = socket_pair();
    CHECK_FALSE(send_message(channel.ours.get(), "x", 1, 999999));
    CHECK(errno == EBADF);
    CHECK(receive(channel.theirs.get(), text).kind == Received::Kind::nothing);
}

TEST_CASE("receiving may wait for a message") {
    const Ends channel = socket_pair();
    std::string text(64, '\0');
    Received received;
    std::thread waiter{
        [&] { received = receive_message(channel.theirs.get(), text.data(), text.size(), true); }};
    REQUIRE(send_message(channel.ours.get(), "late", 4, -1));
    waiter.join();
    CHECK(received.kind == Received::Kind::message);
    CHECK(received.size == 4);
}
