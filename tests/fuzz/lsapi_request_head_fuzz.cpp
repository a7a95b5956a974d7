// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/request_head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    cede::tests::check_head(cede::protocol::Protocol::lsapi, data, size);
    return 0;
}
