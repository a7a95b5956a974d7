// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/uio.h>

#include "protocol/short_answer.h"

// The end of a request that has run for too long (--request-timeout): the supervisor asks by a real-time
// signal (children::overtime_signal), the only kind that PHP never takes for itself. The web server gets a
// complete answer if none has begun, the child ends. docs/design/0010-an-answer-for-what-is-ended.md has why.
namespace cede::agent {

// In a child, before it takes its first request.
void watch_overtime() noexcept;
// In a copy that a script has forked: the signal means there what it means to everybody.
void forget_overtime() noexcept;

// Ends the running request and this process, with this answer if none has begun. Not even shutdown functions
// run: PHP must not go on with what it has of the request.
[[noreturn]] void end_request_now(const protocol::ShortAnswer& answer) noexcept;

// In front of each write to the connection. True: a part of the answer has gone out before.
bool note_writing(const iovec* parts, int count) noexcept;
// Behind a write that the kernel has taken as a whole, if nothing of the answer had gone out before: what PHP
// logs to the web server is no part of the answer.
void note_whole_write(const iovec* parts, int count) noexcept;

// Scripts and their libraries find the signal's default in place of our handler, and may set their own, which
// then counts. True: the call was about that signal and has been carried out; errno and `result` are those of
// sigaction(2).
bool overtime_disposition(int number, const struct sigaction* action, struct sigaction* old,
                          int& result) noexcept;
// Behind a call of another of libc's functions that set one. What is to be said to have been in force before,
// given what libc says.
using SignalHandler = void (*)(int);
SignalHandler overtime_set(int number, SignalHandler before) noexcept;

}  // namespace cede::agent
