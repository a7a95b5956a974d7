// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/answer.h"

#include <algorithm>

namespace cede::bench {

void BodyCheck::add(std::string_view piece) noexcept {
    if (expected_.data() != nullptr && !bad_) {
        bad_ = expected_.substr(std::min(bytes_, expected_.size())).substr(0, piece.size()) != piece;
    }
    bytes_ += piece.size();
}

}  // namespace cede::bench
