// SPDX-License-Identifier: Apache-2.0
#include "children/agent/exchange.h"

#include "children/agent/agent.h"
#include "protocol/lsapi_request_reader.h"

namespace cede::agent {

using protocol::Bytes;
using protocol::Outcome;
using protocol::Protocol;

namespace {

bool lsapi() noexcept {
    return agent.protocol == Protocol::lsapi;
}

}  // namespace

void Exchange::reset() noexcept {
    fastcgi_ = {};
    lsapi_ = {};
}

Exchange::Admission Exchange::admit(Bytes waiting) noexcept {
    if (waiting.empty()) {
        return {};
    }
    return lsapi() ? admit_lsapi(waiting) : admit_fastcgi(waiting);
}

// What PHP makes of a bad record is PHP's business; only another protocol altogether is turned away.
Exchange::Admission Exchange::admit_fastcgi(Bytes waiting) noexcept {
    if (fastcgi_.in.begun() == 0 && fastcgi_.in.at_boundary() &&
        protocol::detect(waiting.front()) == Protocol::lsapi) {
        return {Outcome::bad_version};
    }
    fastcgi_.in.feed(waiting);
    return {Outcome::done, waiting.size()};
}

Exchange::Admission Exchange::admit_lsapi(Bytes waiting) noexcept {
    const auto of_body = [this](std::size_t size) {
        const std::size_t part = size < lsapi_.body_left ? size : static_cast<std::size_t>(lsapi_.body_left);
        lsapi_.body_left -= part;
        return part;
    };
    if (lsapi_.body_left > 0) {
        return {Outcome::done, of_body(waiting.size())};
    }
    if (!settled()) {
        return {};  // the next request, ahead of its time
    }
    protocol::lsapi::RequestReader reader;
    const Outcome outcome = reader.read(waiting);
    if (outcome == Outcome::done) {
        ++lsapi_.requests;
        lsapi_.body_left = reader.body_length();
        return {Outcome::done, reader.size() + of_body(waiting.size() - reader.size())};
    }
    if (outcome == Outcome::unexpected_type) {
        using namespace protocol::lsapi;
        const PacketHeader header = decode_header(waiting);
        // The client left when its answer was complete, or before this connection was given to us.
        if (header.type == PacketType::abort_request && header.length == packet_header_size) {
            return {Outcome::need_more, 0, packet_header_size};
        }
    }
    return {outcome};
}

bool Exchange::may_receive(std::size_t size) const noexcept {
    constexpr std::size_t worth_direct = 8192;  // below, reading ahead saves more than the copy costs
    return size >= worth_direct && (!lsapi() || lsapi_.body_left >= size);
}

void Exchange::received(Bytes bytes) noexcept {
    if (lsapi()) {
        lsapi_.body_left -= bytes.size();
    } else {
        fastcgi_.in.feed(bytes);
    }
}

void Exchange::sent(Bytes bytes) noexcept {
    if (lsapi()) {
        lsapi_.out.feed(bytes);
    } else {
        fastcgi_.out.feed(bytes);
    }
}

std::uint64_t Exchange::answers() const noexcept {
    return lsapi() ? lsapi_.out.ended() : fastcgi_.out.ended();
}

bool Exchange::close_announced() const noexcept {
    return lsapi() && lsapi_.out.close_announced();
}

bool Exchange::at_boundary() const noexcept {
    return lsapi() ? lsapi_.body_left == 0 : fastcgi_.in.at_boundary();
}

std::uint64_t Exchange::requests() const noexcept {
    return lsapi() ? lsapi_.requests : fastcgi_.in.begun();
}

bool Exchange::in_head() const noexcept {
    return !lsapi() && fastcgi_.in.in_head();
}

std::uint64_t Exchange::heads() const noexcept {
    return lsapi() ? lsapi_.requests : fastcgi_.in.heads();
}

bool Exchange::request_complete() const noexcept {
    return lsapi() ? lsapi_.requests > 0 && lsapi_.body_left == 0 : fastcgi_.in.request_complete();
}

}  // namespace cede::agent
