// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

// What is known of the process's signal dispositions. PHP asks for seven of them at the start of each request
// (zend_signal_activate), which is a third of all system calls of a small one; the answers do not change as
// long as nobody sets one (docs/design/0005-signal-queries.md).
namespace cede::agent {

// sigaction(2) without a new action. True if the answer is known; `old` is then filled.
bool known_disposition(int number, struct sigaction* old) noexcept;
// sigaction(2) with a new action that is the one in force already, `old` not being asked for: nothing to do.
bool in_force(int number, const struct sigaction& action) noexcept;
// What the kernel has just answered.
void learn_disposition(int number, const struct sigaction& answer) noexcept;
// Somebody may have set it. 0: any of them.
void forget_disposition(int number) noexcept;

}  // namespace cede::agent
