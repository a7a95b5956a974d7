// SPDX-License-Identifier: Apache-2.0
#include "children/fd_batch.h"

#include <array>
#include <cstdint>

#include <doctest/doctest.h>

#include "children/fd_passing.h"
#include "tests/support/descriptors.h"

using namespace cede::children;
using cede::tests::at_end;
using cede::tests::closes_on_exec;
using cede::tests::descriptors_of;
using cede::tests::Ends;
using cede::tests::pipe_pair;
using cede::tests::socket_pair;

namespace {

// Connections that can be told apart by the number they have to read.
struct Numbered {
    explicit Numbered(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            pipes.push_back(pipe_pair());
            (void)!::write(pipes.back().theirs.get(), &i, sizeof i);
        }
    }
    [[nodiscard]] std::vector<OutgoingFd> messages() const {
        std::vector<OutgoingFd> result;
        for (const Ends& pipe : pipes) {
            result.push_back({&text, sizeof text, pipe.ours.get()});
        }
        return result;
    }
    std::vector<Ends> pipes;
    std::uint64_t text = 0x1122334455667788;
};

std::uint32_t number_of(const UniqueFd& fd) {
    std::uint32_t number = 0xffffffff;
    (void)!::read(fd.get(), &number, sizeof number);
    return number;
}

}  // namespace

TEST_CASE("a batch arrives in order, each message with its descriptor") {
    const Ends channel = socket_pair();
    const Numbered numbered{fd_batch_size};
    CHECK(send_batch(channel.ours.get(), numbered.messages()) == fd_batch_size);
    std::vector<IncomingFd> into;
    CHECK(receive_batch(channel.theirs.get(), sizeof numbered.text, into) == fd_batch_size);
    REQUIRE(into.size() == fd_batch_size);
    for (std::uint32_t i = 0; i < fd_batch_size; ++i) {
        CHECK(number_of(into[i].fd) == i);
        CHECK(closes_on_exec(into[i].fd.get()));
        CHECK(std::memcmp(into[i].data.data(), &numbered.text, sizeof numbered.text) == 0);
    }
    CHECK(receive_batch(channel.theirs.get(), sizeof numbered.text, into) == 0);
    CHECK(into.size() == fd_batch_size);
}

TEST_CASE("what one side sends in a batch the other receives one by one, and the other way round") {
    const Ends channel = socket_pair();
    const Numbered numbered{5};
    REQUIRE(send_batch(channel.ours.get(), numbered.messages()) == 5);
    for (std::uint32_t i = 0; i < 5; ++i) {
        std::uint64_t text = 0;
        const Received received = receive_message(channel.theirs.get(), &text, sizeof text, false);
        CHECK(received.size == sizeof text);
        CHECK(text == numbered.text);
        CHECK(number_of(UniqueFd{received.fd}) == i);
    }
    const Numbered again{40};
    for (const OutgoingFd& message : again.messages()) {
        REQUIRE(send_message(channel.theirs.get(), message.data, message.size, message.fd));
    }
    std::vector<IncomingFd> into;
    CHECK(receive_batch(channel.ours.get(), sizeof again.text, into) == fd_batch_size);
    CHECK(receive_batch(channel.ours.get(), sizeof again.text, into) == 40 - fd_batch_size);
    for (std::uint32_t i = 0; i < 40; ++i) {
        CHECK(number_of(into[i].fd) == i);
    }
}

TEST_CASE("no more than a batch is sent at once, and nothing of nothing") {
    const Ends channel = socket_pair();
    const Numbered numbered{fd_batch_size + 8};
    CHECK(send_batch(channel.ours.get(), numbered.messages()) == fd_batch_size);
    CHECK(send_batch(channel.ours.get(), {}) == 0);
}

TEST_CASE("the kernel takes what it has room for, in order, and never makes the sender wait") {
    const Ends channel = socket_pair();
    const Numbered numbered{fd_batch_size};
    const int room = 1;  // as little as the kernel allows
    setsockopt(channel.ours.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    const std::size_t sent = send_batch(channel.ours.get(), numbered.messages());
    CHECK(sent > 0);
    CHECK(sent < fd_batch_size);
    CHECK(send_batch(channel.ours.get(), numbered.messages()) == 0);
    std::vector<IncomingFd> into;
    CHECK(receive_batch(channel.theirs.get(), sizeof numbered.text, into) == sent);
    CHECK(number_of(into.back().fd) == sent - 1);
}

TEST_CASE("messages of another size, or without a descriptor, count and leave nothing behind") {
    const Ends channel = socket_pair();
    Numbered numbered{4};
    const auto messages = numbered.messages();
    const std::array<char, 200> other{};
    REQUIRE(send_message(channel.ours.get(), other.data(), 7, messages[0].fd));
    REQUIRE(send_message(channel.ours.get(), other.data(), 9, messages[1].fd));
    REQUIRE(send_message(channel.ours.get(), other.data(), other.size(), messages[2].fd));
    REQUIRE(send_message(channel.ours.get(), other.data(), 8, -1));
    REQUIRE(send_message(channel.ours.get(), other.data(), 8, messages[3].fd));
    const auto before = descriptors_of().size();
    std::vector<IncomingFd> into;
    CHECK(receive_batch(channel.theirs.get(), 8, into) == 5);
    REQUIRE(into.size() == 1);
    CHECK(number_of(into[0].fd) == 3);
    CHECK(descriptors_of().size() == before + 1);
}

TEST_CASE("of several descriptors in a message one is kept and none is leaked") {
    const Ends channel = socket_pair();
    Ends pipe = pipe_pair();
    for (const std::size_t count : {2U, 3U, 10U}) {
        std::uint64_t text = 0;
        iovec part{&text, sizeof text};
        std::vector<char> control(CMSG_SPACE(sizeof(int) * count));
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * count);
        const std::vector<int> fds(count, pipe.theirs.get());
        std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * count);
        REQUIRE(sendmsg(channel.ours.get(), &message, 0) == sizeof text);
    }
    const auto before = descriptors_of().size();
    std::vector<IncomingFd> into;
    CHECK(receive_batch(channel.theirs.get(), 8, into) == 3);
    CHECK(into.size() == 3);
    CHECK(descriptors_of().size() == before + 3);
    into.clear();
    pipe.theirs.reset();
    char byte = 0;
    CHECK(::read(pipe.ours.get(), &byte, 1) == 0);
}

TEST_CASE("a peer that has gone is nothing to receive and nobody to send to") {
    Ends channel = socket_pair();
    const Numbered numbered{1};
    std::vector<IncomingFd> into;
    channel.theirs.reset();
    CHECK(send_batch(channel.ours.get(), numbered.messages()) == 0);
    CHECK(into.empty());
    CHECK(send_batch(-1, numbered.messages()) == 0);
    CHECK(receive_batch(-1, 8, into) == 0);
}
