// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "children/agent/exchange.h"
#include "children/whole_request.h"
#include "protocol/bytes.h"
#include "protocol/request_head.h"

namespace cede::agent {

// The one connection that this child serves: its descriptor, what was read ahead of PHP, and where both
// streams stand. php-cgi reads a record in two to four exact reads; reading ahead makes one system call of
// them. lsphp must never be given a byte of the next request.
class Connection {
  public:
    // The longest STDIN record that nginx sends is half of that; the longest head of LSAPI is one byte less.
    static constexpr std::size_t capacity = children::most_peeked;

    void open(int fd) noexcept;
    void forget() noexcept { fd_ = -1; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] bool is(int fd) const noexcept { return fd >= 0 && fd == fd_; }

    // --- from the web server ---
    enum class Fill { data, end, nothing, interrupted, failed };
    // Receives behind what is buffered, which does not fill the buffer. `nothing`: it would block. `failed`:
    // errno says why.
    Fill fill() noexcept;
    // The same without taking it out of the socket, with nothing buffered; and then takes so much of it.
    Fill peek() noexcept;
    Fill take_peeked(std::size_t size) noexcept;
    [[nodiscard]] protocol::Bytes peeked() const noexcept;
    // What is buffered and PHP has no part of: a request from its first byte on, if PHP waits for one.
    [[nodiscard]] protocol::Bytes unread() const noexcept;
    // A request that PHP is not to see.
    void skip(std::size_t size) noexcept { begin_ = admitted_ = begin_ + size; }
    // Puts a variable more into the head that begins unread(). Without room for it nothing happens.
    void add_variable(std::size_t head_size, std::string_view name, std::string_view value) noexcept;
    // Looks at what has been received: done once there is something available to PHP.
    [[nodiscard]] protocol::Outcome admit() noexcept;
    [[nodiscard]] protocol::Protocol looks_like() const noexcept;
    // Receives straight into PHP's memory, for reads that are not worth a copy. As recv(2) with MSG_DONTWAIT.
    std::ptrdiff_t receive(void* to, std::size_t size) noexcept;
    [[nodiscard]] bool worth_receiving(std::size_t size) const noexcept {
        return exchange_.may_receive(size);
    }
    [[nodiscard]] bool buffered() const noexcept { return begin_ < end_; }
    [[nodiscard]] bool available() const noexcept { return begin_ < admitted_; }
    std::size_t take(void* to, std::size_t size) noexcept;
    void discard_buffer() noexcept { begin_ = admitted_ = end_ = 0; }
    void discard_available() noexcept { begin_ = admitted_; }

    // --- to the web server ---
    // Call with what the kernel has accepted. Returns true when this completed an answer.
    bool wrote(const void* data, std::size_t size) noexcept;
    [[nodiscard]] bool close_announced() const noexcept { return exchange_.close_announced(); }

    // Between two requests: every answer is complete and PHP has consumed what came, to the end of a record
    // or request. Only here may the connection change hands.
    [[nodiscard]] bool at_rest() const noexcept {
        return !buffered() && exchange_.at_boundary() && exchange_.settled();
    }
    [[nodiscard]] bool answered() const noexcept { return exchange_.requests() > 0 && exchange_.settled(); }
    [[nodiscard]] bool running() const noexcept { return exchange_.heads() > exchange_.answers(); }
    // A request has a complete head, it is its turn, and begin() was not called for it yet.
    [[nodiscard]] bool begins() const noexcept { return begun_ < due(); }
    // How many there are of those: one, with any PHP that reads no request ahead of its time.
    std::uint64_t begin() noexcept;
    // FastCGI: the latest request's id.
    [[nodiscard]] std::uint16_t request_id() const noexcept { return exchange_.request_id(); }
    // PHP has been given a part of a request's head and waits for more of it.
    [[nodiscard]] bool in_head() const noexcept { return exchange_.in_head(); }
    // One request has no answer yet, and no other has been announced.
    [[nodiscard]] bool alone() const noexcept { return exchange_.requests() == exchange_.answers() + 1; }
    // The peer has nothing more to send for the latest request: closing can not reset the answer on its way.
    [[nodiscard]] bool received_whole() const noexcept { return exchange_.request_complete(); }
    // The same, and PHP has read it.
    [[nodiscard]] bool request_complete() const noexcept {
        return exchange_.request_complete() && !available();
    }

    bool new_to_php = false;          // PHP polls it once before its first read
    bool closing = false;             // PHP has ended the connection and waits for its peer to do so
    bool shutdown_deferred = false;   // shutdown(2) was left out, close(2) will say the same
    bool over = false;                // given up: for PHP it has ended
    std::uint64_t head_since_ns = 0;  // CLOCK_MONOTONIC; 0: nothing of a head has been waited for yet
    std::uint64_t body_since_ns = 0;  // the same of a body
    std::uint64_t body_bytes = 0;     // since then
    std::uint64_t begun_ns = 0;       // when the running request had its turn
    std::uint64_t waited_us = 0;      // for a child, of the request that begins

  private:
    // How many requests have had their turn.
    [[nodiscard]] std::uint64_t due() const noexcept;

    int fd_ = -1;
    // Of the buffer: taken by PHP to begin_, available to it up to admitted_, received up to end_.
    std::size_t begin_ = 0;
    std::size_t admitted_ = 0;
    std::size_t end_ = 0;
    std::size_t peeked_ = 0;
    std::uint64_t begun_ = 0;
    Exchange exchange_;
};

}  // namespace cede::agent
