// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace cede::pm {

// What came of something that was asked of the supervisor: a sentence, or several lines, for whoever asked.
struct Outcome {
    bool good = false;
    std::string text;
};

// Called exactly once, now or later.
using Answer = std::function<void(const Outcome&)>;

}  // namespace cede::pm
