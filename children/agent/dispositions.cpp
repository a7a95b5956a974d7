// SPDX-License-Identifier: Apache-2.0
#include "children/agent/dispositions.h"

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
