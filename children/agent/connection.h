// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/fastcgi_scanner.h"

namespace cede::agent {

// The one connection that this child serves: its descriptor, what was read ahead of PHP, and where both
// streams stand. PHP reads a record in two to four exact reads; reading ahead makes one system call of them.
class Connection {
  public:
    static constexpr std::size_t capacity = 32768;  // the longest STDIN record that nginx sends

    void open(int fd) noexcept;
    void forget() noexcept { fd_ = -1; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] bool is(int fd) const noexcept { return fd >= 0 && fd == fd_; }

    // --- from the web server ---
    enum class Fill { data, end, nothing, interrupted, failed };
    // Receives into the empty buffer. `nothing`: it would block. `failed`: errno says why.
    Fill fill(bool wait) noexcept;
    // Receives straight into PHP's memory, for reads that are not worth a copy. As recv(2).
    std::ptrdiff_t receive(void* to, std::size_t size) noexcept;
    [[nodiscard]] bool buffered() const noexcept { return begin_ < end_; }
    std::size_t take(void* to, std::size_t size) noexcept;
    void discard_buffer() noexcept { begin_ = end_ = 0; }

    // --- to the web server ---
    // Call with what the kernel has accepted. Returns true when this completed an answer.
    bool wrote(const void* data, std::size_t size) noexcept;

    // Between two requests: every answer is complete and PHP has consumed what came, to the end of a record.
    // Only here may the connection change hands (docs/fastcgi.md).
    [[nodiscard]] bool at_rest() const noexcept {
        return !buffered() && in_.at_boundary() && out_.ended() >= in_.begun();
    }
    [[nodiscard]] bool answered() const noexcept { return in_.begun() > 0 && out_.ended() >= in_.begun(); }
    [[nodiscard]] bool running() const noexcept { return in_.begun() > out_.ended() && in_.head_complete(); }
    // The peer has nothing more to send for the latest request: closing can not reset the answer on its way.
    [[nodiscard]] bool request_complete() const noexcept { return in_.request_complete() && !buffered(); }

    bool new_to_php = false;         // PHP polls it once before its first read
    bool closing = false;            // PHP has ended the connection and waits for its peer to do so
    bool shutdown_deferred = false;  // shutdown(2) was left out, close(2) will say the same

  private:
    int fd_ = -1;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    protocol::fastcgi::RequestScanner in_;
    protocol::fastcgi::ResponseScanner out_;
};

}  // namespace cede::agent
