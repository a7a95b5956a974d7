// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/bytes.h"

namespace cede::bench {

// Why a request was not served.
enum class Failure : std::uint8_t {
    none,
    connect,      // the connection was refused, took too long, or the socket's queue was full
    closed,       // the other side closed before the answer was complete
    reset,        // as `closed`, by a reset or another socket error
    timeout,      // no complete answer within the patience
    protocol,     // the answer breaks its protocol, or bytes came without a request
    app_status,   // FastCGI: END_REQUEST with another appStatus or protocolStatus than 0
    http_status,  // a status that is not 2xx
    body,         // another body than the expected one
    refused,      // the other side's own answer: a status of 503, with or without FCGI_OVERLOADED
    unavailable,  // LSAPI: connections were lost or not to be had as often as the web server tries; its
                  // client gets a 503
};
inline constexpr std::size_t failure_count = 11;
inline constexpr std::array<std::string_view, failure_count> failure_names{
    "none",       "connect",     "closed", "reset",   "timeout",    "protocol",
    "app_status", "http_status", "body",   "refused", "unavailable"};

// Compares what a client is sent as the body of its answer with what it expects; stores nothing of it.
class BodyCheck {
  public:
    // `expected` must outlive the check; with a null data pointer any body is right.
    explicit BodyCheck(std::string_view expected = {}) noexcept : expected_(expected) {}

    void add(std::string_view piece) noexcept;
    [[nodiscard]] bool right() const noexcept {
        return expected_.data() == nullptr || (!bad_ && bytes_ == expected_.size());
    }

  private:
    std::string_view expected_;
    std::size_t bytes_ = 0;
    bool bad_ = false;
};

// Reads the answers that come on one connection, one after another.
class Answer {
  public:
    enum class State : std::uint8_t { incomplete, complete };
    enum class Idle : std::uint8_t {
        silent,  // nothing that concerns the web server
        close,   // the connection shall be closed
        broken,  // bytes that have no place between two answers
    };

    Answer() = default;
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;
    virtual ~Answer() = default;

    // The connection is a new one.
    virtual void open() noexcept = 0;
    // A request is about to be sent on it.
    virtual void begin() noexcept = 0;
    // Takes all of `bytes`: the answer to the request and, behind it, what belongs to no answer.
    [[nodiscard]] virtual State feed(protocol::Bytes bytes, BodyCheck& body) noexcept = 0;
    // The same while no request is under way.
    [[nodiscard]] virtual Idle feed_idle(protocol::Bytes bytes) noexcept = 0;
    // True when no byte of the answer has arrived.
    [[nodiscard]] virtual bool untouched() const noexcept = 0;
    // True when the other side has said that it runs the script.
    [[nodiscard]] virtual bool acknowledged() const noexcept = 0;
    // True when the other side wants the connection to be closed behind the answer.
    [[nodiscard]] virtual bool closing() const noexcept = 0;

    // Valid when complete; `protocol` completes an answer at once.
    [[nodiscard]] Failure failure() const noexcept { return failure_; }

  protected:
    Failure failure_ = Failure::none;
};

}  // namespace cede::bench
