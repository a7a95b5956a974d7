// SPDX-License-Identifier: Apache-2.0
#include "children/whole_request.h"

#include <optional>

#include "protocol/fastcgi.h"

namespace cede::children {

using protocol::Bytes;
using protocol::Outcome;
using protocol::Protocol;
using protocol::RequestHead;

namespace {

// The empty STDIN record may come when PHP has read all of the body that was announced, and answered.
bool ends_a_body_only(Bytes bytes) noexcept {
    namespace fastcgi = protocol::fastcgi;
    while (bytes.size() >= fastcgi::header_size) {
        const fastcgi::RecordHeader record = fastcgi::decode_header(bytes);
        const std::size_t size = fastcgi::header_size + record.padding_length;
        if (record.type != fastcgi::RecordType::stdin_stream || record.content_length != 0 ||
            bytes.size() < size) {
            return false;
        }
        bytes = bytes.subspan(size);
        if (bytes.empty()) {
            return true;
        }
    }
    return false;
}

// How much PHP reads of a body; nothing: that can't be told.
std::optional<std::uint64_t> announced_body(Protocol protocol, Bytes head) noexcept {
    constexpr std::size_t most_digits = 18;
    std::byte digits[most_digits];
    const auto size = protocol::find_variable(protocol, head, "CONTENT_LENGTH", digits);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < size.value_or(0); ++i) {
        const auto digit = static_cast<unsigned>(digits[i]) - unsigned{'0'};
        if (digit > 9) {
            return std::nullopt;
        }
        length = length * 10 + digit;
    }
    return length;
}

}  // namespace

Wholeness wholeness_of(Protocol protocol, const RequestHead& head, Bytes peeked) noexcept {
    const bool full = peeked.size() >= most_peeked;
    if (head.outcome == Outcome::need_more) {
        if (protocol == Protocol::fastcgi && ends_a_body_only(peeked)) {
            return Wholeness::leftover;
        }
        return full ? Wholeness::broken : Wholeness::part;
    }
    if (head.outcome != Outcome::done) {
        return Wholeness::broken;
    }
    if (full || head.request_complete || head.body_here >= enough_of_body) {
        return Wholeness::ready;
    }
    if (protocol == Protocol::fastcgi) {
        const auto announced = announced_body(protocol, peeked.first(head.head_size));
        if (announced && head.body_here >= *announced) {
            return Wholeness::ready;
        }
    }
    return Wholeness::part;
}

}  // namespace cede::children
