// SPDX-License-Identifier: Apache-2.0
#include "children/agent/dispositions.h"

#include <cstdint>
#include <cstring>

#include "children/agent/agent.h"

namespace cede::agent {
namespace {

constexpr int count = 32;  // the standard signals; all that PHP asks for are among them

struct Known {
    bool valid;
    struct sigaction answer;
};
constinit Known known[count] = {};

bool in_range(int number) noexcept {
    return number > 0 && number < count;
}

}  // namespace

bool known_disposition(int number, struct sigaction* old) noexcept {
    // Only a child: elsewhere nothing is asked often enough, and a copy forked by a script is on its own.
    if (agent.role != Role::child || !in_range(number) || !known[number].valid) {
        return false;
    }
    *old = known[number].answer;
    return true;
}

bool in_force(int number, const struct sigaction& action) noexcept {
    struct sigaction now;
    if (!known_disposition(number, &now)) {
        return false;
    }
    // The kernel's answer differs from what was set in two harmless ways: libc adds a flag for its return
    // trampoline (SA_RESTORER), and KILL and STOP are taken out of the mask.
    constexpr unsigned restorer = 0x04000000;
    if (now.sa_handler != action.sa_handler ||
        ((static_cast<unsigned>(now.sa_flags) ^ static_cast<unsigned>(action.sa_flags)) & ~restorer) != 0) {
        return false;
    }
    // The kernel knows 64 signals; libc's sigset_t has them in its first words.
    std::uint64_t differing = 0;
    std::uint64_t asked = 0;
    static_assert(sizeof(sigset_t) >= sizeof asked);
    std::memcpy(&differing, &now.sa_mask, sizeof differing);
    std::memcpy(&asked, &action.sa_mask, sizeof asked);
    differing ^= asked;
    constexpr std::uint64_t never_blocked =
        (std::uint64_t{1} << (SIGKILL - 1)) | (std::uint64_t{1} << (SIGSTOP - 1));
    return (differing & ~never_blocked) == 0;
}

void learn_disposition(int number, const struct sigaction& answer) noexcept {
    // SA_RESETHAND: the kernel itself changes the disposition when the signal arrives.
    if (in_range(number) && (static_cast<unsigned>(answer.sa_flags) & SA_RESETHAND) == 0) {
        known[number] = {true, answer};
    }
}

void forget_disposition(int number) noexcept {
    if (in_range(number)) {
        known[number].valid = false;
        return;
    }
    for (Known& one : known) {
        one.valid = false;
    }
}

}  // namespace cede::agent
