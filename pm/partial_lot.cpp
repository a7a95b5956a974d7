// SPDX-License-Identifier: Apache-2.0
#include "pm/partial_lot.h"

#include <deque>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "children/clock.h"
#include "pm/log.h"
#include "pm/request_peek.h"

namespace cede::pm {

using children::UniqueFd;

namespace {

constexpr unsigned most_pieces = 128;

bool is_unix_socket(int fd) noexcept {
    int domain = AF_UNSPEC;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

}  // namespace

void PartialLot::add(UniqueFd connection, std::uint64_t since_ns) {
    const Poller::Tag tag = places_.next(Poller::Kind::partial);
    // Edge-triggered: the bytes stay where they are, and only more of them are of interest.
    if (poller_.add(connection.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, tag)) {
        places_.put({std::move(connection), since_ns, children::monotonic_ns(), 0, false});
        arrivals_.push_back(tag);
        forget_gone();
    } else {
        ++counts_.closed_for_room;
    }
}

PartialLot::Leaving PartialLot::on_event(const Poller::Event& event) {
    Place* const place = places_.find(event.tag);
    if (place == nullptr) {
        return {};
    }
    const RequestPeek peek = peek_request(place->fd.get(), protocol_);
    using Kind = RequestPeek::Kind;
    if (peek.kind == Kind::ready || peek.kind == Kind::broken) {
        return {leave(event.tag.index)};
    }
    // What is not there now will never come.
    const bool over = (event.flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (over && peek.has_head() && limits_.run_abandoned) {
        return {leave(event.tag.index), true};
    }
    if (over || peek.kind == Kind::gone) {
        ++counts_.gone;
        leave(event.tag.index).reset();
        return {};
    }
    if (peek.bytes.size() > place->seen) {
        place->seen = peek.bytes.size();
        place->latest_ns = children::monotonic_ns();
        ++place->pieces;
    }
    place->has_head = peek.has_head();
    if (place->pieces >= most_pieces && is_unix_socket(place->fd.get())) {
        return {leave(event.tag.index), true};
    }
    return {};
}

bool PartialLot::is_overdue(const Place& place, std::uint64_t now_ns) const noexcept {
    const auto limit = std::chrono::nanoseconds{place.has_head ? limits_.body : limits_.head};
    const std::uint64_t since = place.has_head ? place.latest_ns : place.since_ns;
    return limit.count() > 0 && now_ns > since && now_ns - since > static_cast<std::uint64_t>(limit.count());
}

void PartialLot::tend(std::uint64_t now_ns) {
    const Counts before = counts_;
    for (std::uint32_t index = 0; index < places_.end(); ++index) {
        const Place* const place = places_.at(index);
        if (place != nullptr && is_overdue(*place, now_ns)) {
            ++(place->has_head ? counts_.bodies_too_slow : counts_.heads_too_slow);
            leave(index).reset();
        }
    }
    if (const auto heads = counts_.heads_too_slow - before.heads_too_slow; heads > 0) {
        log(LogLevel::warning,
            "{} connections were closed: the head of a request did not arrive in time (--read-timeout)",
            heads);
    }
    if (const auto bodies = counts_.bodies_too_slow - before.bodies_too_slow; bodies > 0) {
        log(LogLevel::warning,
            "{} connections were closed: the body of a request stood still for too long (--body-timeout)",
            bodies);
    }
}

void PartialLot::close_oldest() {
    while (!arrivals_.empty()) {
        const Poller::Tag oldest = arrivals_.front();
        arrivals_.pop_front();
        if (places_.find(oldest) != nullptr) {
            ++counts_.closed_for_room;
            leave(oldest.index).reset();
            return;
        }
    }
}

// So that there are never more than a few for each who is still here.
void PartialLot::forget_gone() {
    constexpr std::size_t few = 64;
    if (arrivals_.size() > 2 * places_.size() + few) {
        std::erase_if(arrivals_, [this](const Poller::Tag& tag) { return places_.find(tag) == nullptr; });
    }
}

std::vector<UniqueFd> PartialLot::dissolve() {
    std::vector<UniqueFd> ready;
    for (std::uint32_t index = 0; index < places_.end(); ++index) {
        const Place* const place = places_.at(index);
        if (place == nullptr) {
            continue;
        }
        const bool whole = peek_request(place->fd.get(), protocol_).kind == RequestPeek::Kind::ready;
        UniqueFd connection = leave(index);
        if (whole) {
            ready.push_back(std::move(connection));
        }
    }
    return ready;
}

UniqueFd PartialLot::leave(std::uint32_t index) {
    UniqueFd connection = std::move(places_.take(index).fd);
    // A child may still hold the same open file description (epoll(7), Q6).
    poller_.remove(connection.get());
    return connection;
}

}  // namespace cede::pm
