// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

// What the exported wrappers share. entry.cpp has those that every program uses, lsapi_entry.cpp those of
// lsphp alone.
namespace cede::agent {

#define CEDE_EXPORT extern "C" __attribute__((visibility("default")))

// The descriptor is the connection that this child serves.
[[nodiscard]] bool ours(int fd) noexcept;
// After each write to it, with what the kernel took, -1 for nothing, and what note_writing() has returned.
void note_written(const iovec* parts, int count, ssize_t written, bool had_begun) noexcept;

// accept(2) of an LSAPI child, whose connections are taken in select(2) already.
int accept_selected(sockaddr* address, socklen_t* length) noexcept;

}  // namespace cede::agent
