// SPDX-License-Identifier: Apache-2.0
#pragma once

// What ps(1) shows of the zygote: "cede: zygote [TITLE]" over the memory of its arguments, as
// pm/process_title does it for the supervisor. Its children show what they would without it.
namespace cede::agent {

// In the constructor, while arguments and environment still lie as execve(2) has put them.
void keep_title_room(int argc, char** argv, char** environment) noexcept;
// In the zygote, once the scoreboard is there. Without room or memory it does nothing.
void show_zygote_title() noexcept;
// In a process that was forked from it: every byte as it was.
void restore_title() noexcept;

}  // namespace cede::agent
