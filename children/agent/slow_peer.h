// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

// What PHP reads from and writes to its peer, which may be slow: with a limit of time
// (Control::body_timeout_ms, body_rate, write_timeout_ms) behind which the request has ended.
namespace cede::agent {

// The rest of a request, straight into PHP's memory, or into the buffer from which PHP then takes it. As
// recv(2) on a blocking socket. Whose body comes too slowly gets a 408, and the child ends: PHP would take
// the part for the whole.
ssize_t receive_slowly(void* to, size_t size) noexcept;
enum class Filled { data, end, failed };
Filled fill_slowly() noexcept;

// As sendmsg(2) with these flags on a blocking socket. EPIPE, without a signal: the peer has not read its
// answer in time.
ssize_t send_slowly(const iovec* parts, int count, int flags) noexcept;

}  // namespace cede::agent
