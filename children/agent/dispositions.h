// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

// What is known of the process's signal dispositions. PHP asks for and sets more than a dozen of them in each
// request (zend_signal_activate, and lsphp its own), which is half of all system calls of a small one; most
// answers are those of the request before (docs/design/0005-signal-queries.md).
namespace cede::agent {

// sigaction(2) without a new action. True if the kernel's answer is known; `old` is then filled.
bool known_disposition(int number, struct sigaction* old) noexcept;
// sigaction(2) with a new action that is the one in force already, `old` not being asked for: nothing to do.
bool in_force(int number, const struct sigaction& action) noexcept;
// What the kernel has answered, if nobody has set any since settings_made() was this.
void learn_disposition(int number, const struct sigaction& answer, unsigned settings) noexcept;
[[nodiscard]] unsigned settings_made() noexcept;

// Around a call of the kernel that sets one: begin before, end behind it with what begin returned. Whoever
// sets it from a signal handler in between is noticed. `action`: what is in force now, null if not known.
unsigned begin_setting(int number) noexcept;
void end_setting(int number, unsigned begun, const struct sigaction* action) noexcept;

}  // namespace cede::agent
