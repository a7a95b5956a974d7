// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/request_head.h"

// What request_head.h promises, for FastCGI.
namespace cede::protocol::fastcgi {

[[nodiscard]] RequestHead read_request_head(Bytes bytes) noexcept;
[[nodiscard]] std::optional<std::size_t> find_variable(Bytes head, std::string_view name,
                                                       MutableBytes value) noexcept;
// `head_size` is at most `used`, and `used` at most the size of the buffer.
[[nodiscard]] std::optional<std::size_t> add_variable(MutableBytes buffer, std::size_t used,
                                                      std::size_t head_size, std::string_view name,
                                                      std::string_view value) noexcept;

}  // namespace cede::protocol::fastcgi
