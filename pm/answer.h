// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace cede::pm {

// How a command at the control socket ended, for the person who gave it.
struct Outcome {
    bool good = false;
    std::string text;  // a sentence, or several lines; no final line feed
};

// To be called once; further calls do nothing. Whoever waits for it may have left meanwhile.
using Answer = std::function<void(Outcome)>;

}  // namespace cede::pm
