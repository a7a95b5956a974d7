// SPDX-License-Identifier: Apache-2.0
#include "children/agent/dispositions.h"

#include <cstdint>
#include <cstring>

#include "children/agent/agent.h"

namespace cede::agent {
namespace {

constexpr int signal_count = 32;  // the standard signals; all that PHP asks for are among them

struct Known {
    bool valid;     // `now` is in force
    bool answered;  // and stands as the kernel would answer
    struct sigaction now;
    struct sigaction answers[2];  // that the kernel has given before: lsphp changes to and fro between two
    bool has_answer[2];
    unsigned next_answer;
};
constinit Known known[signal_count] = {};
constinit volatile unsigned settings = 0;

bool in_range(int number) noexcept {
    // Only a child: elsewhere nothing is asked often enough, and a copy forked by a script is on its own.
    return number > 0 && number < signal_count && agent.role == Role::child;
}

// The kernel's answer differs from what was set in two harmless ways: libc adds a flag for its return
// trampoline (SA_RESTORER), and KILL and STOP are taken out of the mask.
bool same(const struct sigaction& one, const struct sigaction& other) noexcept {
    constexpr unsigned restorer = 0x04000000;
    if (one.sa_handler != other.sa_handler ||
        ((static_cast<unsigned>(one.sa_flags) ^ static_cast<unsigned>(other.sa_flags)) & ~restorer) != 0) {
        return false;
    }
    // The kernel knows 64 signals; libc's sigset_t has them in its first words.
    std::uint64_t differing = 0;
    std::uint64_t mask = 0;
    static_assert(sizeof(sigset_t) >= sizeof mask);
    std::memcpy(&differing, &one.sa_mask, sizeof differing);
    std::memcpy(&mask, &other.sa_mask, sizeof mask);
    differing ^= mask;
    constexpr std::uint64_t never_blocked =
        (std::uint64_t{1} << (SIGKILL - 1)) | (std::uint64_t{1} << (SIGSTOP - 1));
    return (differing & ~never_blocked) == 0;
}

// SA_RESETHAND: the kernel itself changes the disposition when the signal arrives.
bool lasts(const struct sigaction& action) noexcept {
    return (static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) == 0;
}

}  // namespace

bool known_disposition(int number, struct sigaction* old) noexcept {
    if (!in_range(number) || !known[number].valid || !known[number].answered) {
        return false;
    }
    *old = known[number].now;
    return true;
}

bool in_force(int number, const struct sigaction& action) noexcept {
    return in_range(number) && known[number].valid && same(known[number].now, action);
}

unsigned settings_made() noexcept {
    return settings;
}

void learn_disposition(int number, const struct sigaction& answer, unsigned before) noexcept {
    if (!in_range(number) || !lasts(answer) || settings != before) {
        return;
    }
    Known& one = known[number];
    one.valid = one.answered = true;
    one.now = answer;
    one.answers[one.next_answer] = answer;
    one.has_answer[one.next_answer] = true;
    one.next_answer = 1 - one.next_answer;
}

unsigned begin_setting(int number) noexcept {
    if (in_range(number)) {
        known[number].valid = false;
    }
    const unsigned begun = settings + 1;
    settings = begun;
    return begun;
}

void end_setting(int number, unsigned begun, const struct sigaction* action) noexcept {
    if (!in_range(number)) {
        return;
    }
    Known& one = known[number];
    one.valid = action != nullptr && settings == begun && lasts(*action);
    one.answered = false;
    if (!one.valid) {
        return;
    }
    one.now = *action;
    for (int i = 0; i < 2 && !one.answered; ++i) {
        if (one.has_answer[i] && same(one.answers[i], *action)) {
            one.now = one.answers[i];
            one.answered = true;
        }
    }
}

}  // namespace cede::agent
