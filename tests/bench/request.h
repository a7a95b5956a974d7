// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cede::bench {

// The bytes of one GET request for a script as nginx 1.22 sends it: its usual parameters, one PARAMS record
// padded to a multiple of 8, request id 1, all in one piece. Throws std::invalid_argument if the script's
// name is too long.
[[nodiscard]] std::vector<std::byte> build_request(const std::string& script, bool keep_connection);

// The request id of every request.
inline constexpr unsigned short request_id = 1;

}  // namespace cede::bench
