// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/lsapi_answer.h"

#include <string>
#include <string_view>

namespace cede::bench {

using protocol::lsapi::ResponseEvent;

namespace {

constexpr std::string_view status_header = "Status: ";

Failure failure_of(std::string_view status) noexcept {
    if (status.starts_with("503")) {
        return Failure::refused;
    }
    return status.starts_with('2') ? Failure::none : Failure::http_status;
}

}  // namespace

void LsapiAnswer::open() noexcept {
    reader_ = protocol::lsapi::ResponseReader{head_};
    closing_ = false;
    begin();
}

// The reader stays: it may have the first part of a CONN_CLOSE that crosses the request.
void LsapiAnswer::begin() noexcept {
    head_seen_ = false;
    status_failure_ = Failure::none;
    failure_ = Failure::none;
}

void LsapiAnswer::check_head() noexcept {
    head_seen_ = true;
    const std::int32_t status = reader_.status();
    status_failure_ = status == 0 ? Failure::none : failure_of(std::to_string(status));
    auto lines = reader_.lines();
    while (const auto line = lines.next()) {
        if (status == 0 && line->starts_with(status_header)) {
            status_failure_ = failure_of(line->substr(status_header.size()));
        }
    }
}

Failure LsapiAnswer::judge(const BodyCheck& body) const noexcept {
    if (status_failure_ != Failure::none) {
        return status_failure_;
    }
    return head_seen_ && body.right() ? Failure::none : Failure::body;
}

Answer::State LsapiAnswer::feed(protocol::Bytes bytes, BodyCheck& body) noexcept {
    for (;;) {
        switch (reader_.next(bytes)) {
            case ResponseEvent::need_more:
                return State::incomplete;
            case ResponseEvent::received:
            case ResponseEvent::stderr_bytes:
                break;
            case ResponseEvent::head:
                check_head();
                break;
            case ResponseEvent::body_bytes: {
                const protocol::Bytes piece = reader_.content();
                body.add({reinterpret_cast<const char*>(piece.data()), piece.size()});
                break;
            }
            case ResponseEvent::conn_close:
                closing_ = true;
                break;
            case ResponseEvent::end:
                failure_ = judge(body);
                reader_ = protocol::lsapi::ResponseReader{head_};
                if (feed_idle(bytes) == Idle::broken) {
                    failure_ = Failure::protocol;
                }
                return State::complete;
            case ResponseEvent::refused:
                failure_ = Failure::protocol;
                return State::complete;
        }
    }
}

Answer::Idle LsapiAnswer::feed_idle(protocol::Bytes bytes) noexcept {
    for (;;) {
        switch (reader_.next(bytes)) {
            case ResponseEvent::need_more:
                return closing_ ? Idle::close : Idle::silent;
            case ResponseEvent::conn_close:
                closing_ = true;
                break;
            case ResponseEvent::stderr_bytes:
                break;
            default:
                return Idle::broken;
        }
    }
}

}  // namespace cede::bench
