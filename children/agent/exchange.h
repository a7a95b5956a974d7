// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/bytes.h"
#include "protocol/detect.h"
#include "protocol/fastcgi_scanner.h"
#include "protocol/lsapi_scanner.h"
#include "protocol/outcome.h"

namespace cede::agent {

// Where the two streams of a connection stand, in the protocol that this process speaks: all that the agent
// knows of FastCGI and LSAPI. docs/fastcgi.md and docs/lsapi.md say between which two bytes a connection can
// change hands.
class Exchange {
  public:
    void reset() noexcept;

    // --- from the web server ---
    struct Admission {
        // done: PHP may have `pass` bytes. need_more: nothing can be said yet; `drop` bytes mean nothing to
        // PHP. Anything else: PHP must not see this.
        protocol::Outcome outcome = protocol::Outcome::need_more;
        std::size_t pass = 0;
        std::size_t drop = 0;
    };
    // `waiting`: what came and was not passed yet. Of LSAPI only a complete head is passed, and nothing
    // behind the end of its body: lsphp throws away what it reads beyond.
    [[nodiscard]] Admission admit(protocol::Bytes waiting) noexcept;
    // PHP's next `size` bytes may be received straight into its memory.
    [[nodiscard]] bool may_receive(std::size_t size) const noexcept;
    void received(protocol::Bytes bytes) noexcept;

    // --- to the web server ---
    void sent(protocol::Bytes bytes) noexcept;
    [[nodiscard]] std::uint64_t answers() const noexcept;
    // PHP has told the web server to close.
    [[nodiscard]] bool close_announced() const noexcept;

    // PHP has read all that it was to read, to the end of a request or a record of it.
    [[nodiscard]] bool at_boundary() const noexcept;
    [[nodiscard]] std::uint64_t requests() const noexcept;
    // As many answers as requests.
    [[nodiscard]] bool settled() const noexcept { return answers() >= requests(); }
    // FastCGI: a part of a head has come, and not all of it.
    [[nodiscard]] bool in_head() const noexcept;
    // Requests whose head has been passed, so that a script may run.
    [[nodiscard]] std::uint64_t heads() const noexcept;
    // The peer has nothing more to send for the latest request.
    [[nodiscard]] bool request_complete() const noexcept;
    // FastCGI: the latest request's id.
    [[nodiscard]] std::uint16_t request_id() const noexcept { return fastcgi_.in.request_id(); }

  private:
    [[nodiscard]] Admission admit_fastcgi(protocol::Bytes waiting) noexcept;
    [[nodiscard]] Admission admit_lsapi(protocol::Bytes waiting) noexcept;

    struct FastCgi {
        protocol::fastcgi::RequestScanner in;
        protocol::fastcgi::ResponseScanner out;
    };
    struct Lsapi {
        std::uint64_t requests = 0;
        std::uint64_t body_left = 0;
        protocol::lsapi::ResponseScanner out;
    };
    FastCgi fastcgi_;
    Lsapi lsapi_;
};

}  // namespace cede::agent
