// SPDX-License-Identifier: Apache-2.0
#include "pm/refuser.h"

#include <algorithm>
#include <array>
#include <sys/socket.h>

#include <fmt/format.h>

#include "children/own_answers.h"
#include "pm/limits.h"

namespace cede::pm {
namespace {

constexpr std::size_t longest_answer = 1024;

// The bytes have just been seen, and nobody else reads them.
bool take_off(int connection, std::size_t size) noexcept {
    static std::array<std::byte, children::most_peeked> taken;
    while (size > 0) {
        const ssize_t got = recv(connection, taken.data(), std::min(size, taken.size()), MSG_DONTWAIT);
        if (got <= 0) {
            return false;
        }
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

}  // namespace

Answered answer_instead(int connection, protocol::Protocol protocol, const RequestPeek& peek,
                        const protocol::ShortAnswer& answer) noexcept {
    std::array<std::byte, longest_answer> out;
    const std::size_t size = protocol::write_short_answer(protocol, out, peek.head.id, answer);
    const std::size_t seen = peek.head.request_complete ? peek.head.request_size : peek.bytes.size();
    if (size == 0 || !take_off(connection, seen)) {
        return Answered::failed;
    }
    if (send(connection, out.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
        return Answered::failed;
    }
    return peek.head.request_complete && peek.head.keep_connection ? Answered::kept : Answered::ended;
}

Answered refuse_overdue(int connection, protocol::Protocol protocol, const RequestPeek& peek,
                        std::chrono::nanoseconds max_wait) {
    const auto seconds = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(max_wait).count());
    const std::string retry_after = fmt::format("Retry-After: {}", seconds);
    const std::array<std::string_view, 1> lines{retry_after};
    return answer_instead(connection, protocol, peek, children::too_busy(lines));
}

bool asks_for(protocol::Protocol protocol, const RequestPeek& peek, std::string_view path) {
    std::array<std::byte, limits::longest_ping_path> value;
    if (path.empty() || path.size() > value.size() || !peek.has_head()) {
        return false;
    }
    const auto size =
        protocol::find_variable(protocol, peek.bytes.first(peek.head.head_size), "SCRIPT_NAME", value);
    return size && *size == path.size() &&
           std::equal(path.begin(), path.end(), value.begin(),
                      [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

Answered answer_ping(int connection, protocol::Protocol protocol, const RequestPeek& peek) noexcept {
    return answer_instead(connection, protocol, peek, children::pong);
}

}  // namespace cede::pm
