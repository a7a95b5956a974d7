// SPDX-License-Identifier: Apache-2.0
#include "protocol/request_head.h"

#include "protocol/fastcgi_request_head.h"
#include "protocol/lsapi_request_head.h"

namespace cede::protocol {

RequestHead read_request_head(Protocol protocol, Bytes bytes) noexcept {
    switch (protocol) {
        case Protocol::fastcgi:
            return fastcgi::read_request_head(bytes);
        case Protocol::lsapi:
            return lsapi::read_request_head(bytes);
        case Protocol::unknown:
            break;
    }
    return {.outcome = Outcome::bad_version};
}

std::optional<std::size_t> find_variable(Protocol protocol, Bytes head, std::string_view name,
                                         MutableBytes value) noexcept {
    switch (protocol) {
        case Protocol::fastcgi:
            return fastcgi::find_variable(head, name, value);
        case Protocol::lsapi:
            return lsapi::find_variable(head, name, value);
        case Protocol::unknown:
            break;
    }
    return std::nullopt;
}

std::optional<std::size_t> add_variable(Protocol protocol, MutableBytes buffer, std::size_t used,
                                        std::size_t head_size, std::string_view name,
                                        std::string_view value) noexcept {
    if (head_size > used || used > buffer.size() || name.empty()) {
        return std::nullopt;
    }
    switch (protocol) {
        case Protocol::fastcgi:
            return fastcgi::add_variable(buffer, used, head_size, name, value);
        case Protocol::lsapi:
            return lsapi::add_variable(buffer, used, head_size, name, value);
        case Protocol::unknown:
            break;
    }
    return std::nullopt;
}

}  // namespace cede::protocol
