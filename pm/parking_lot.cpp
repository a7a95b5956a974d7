// SPDX-License-Identifier: Apache-2.0
#include "pm/parking_lot.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "children/clock.h"

namespace cede::pm {
namespace {

// Something to read, without reading it. An end of stream or an error is not.
bool has_data(int fd) noexcept {
    char byte = 0;
    return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

children::UniqueFd ParkingLot::park(children::UniqueFd connection) {
    return park(std::move(connection), children::monotonic_ns());
}

std::vector<Held> ParkingLot::list() const {
    std::vector<Held> all;
    for (std::uint32_t index = oldest_; index != none; index = places_[index].next) {
        all.push_back({places_[index].fd.get(), places_[index].since_ns});
    }
    return all;
}

children::UniqueFd ParkingLot::park(children::UniqueFd connection, std::uint64_t since_ns) {
    const std::uint32_t index = take_place();
    Place& place = places_[index];
    const Poller::Tag tag{kind_, index, place.age};
    if (!poller_.add(connection.get(), EPOLLIN | EPOLLRDHUP, tag)) {
        place.next = free_;
        free_ = index;
        return connection;
    }
    place.fd = std::move(connection);
    place.since_ns = since_ns;
    place.previous = newest_;
    place.next = none;
    (newest_ == none ? oldest_ : places_[newest_].next) = index;
    newest_ = index;
    return ++size_ > capacity_ ? dismiss_longest() : children::UniqueFd{};
}

children::UniqueFd ParkingLot::dismiss_longest() {
    children::UniqueFd longest = leave(oldest_);
    if (has_data(longest.get())) {
        return longest;
    }
    ++closed_for_room_;
    dismiss_(std::move(longest));
    return {};
}

children::UniqueFd ParkingLot::on_event(const Poller::Event& event) noexcept {
    const Poller::Tag tag = event.tag;
    if (tag.index >= places_.size() || !places_[tag.index].fd || places_[tag.index].age != tag.age) {
        return {};
    }
    children::UniqueFd connection = leave(tag.index);
    // A peer may have sent a request and then closed its sending side: that is a request.
    if ((event.flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !has_data(connection.get())) {
        ++peers_gone_;
        return {};
    }
    return connection;
}

children::UniqueFd ParkingLot::dismiss_silent(std::uint64_t parked_before_ns) {
    while (oldest_ != none && places_[oldest_].since_ns < parked_before_ns) {
        children::UniqueFd connection = leave(oldest_);
        if (has_data(connection.get())) {
            return connection;
        }
        dismiss_(std::move(connection));
    }
    return {};
}

std::uint32_t ParkingLot::take_place() {
    if (free_ == none) {
        places_.emplace_back();
        return static_cast<std::uint32_t>(places_.size() - 1);
    }
    const std::uint32_t index = free_;
    free_ = places_[index].next;
    return index;
}

children::UniqueFd ParkingLot::leave(std::uint32_t index) noexcept {
    Place& place = places_[index];
    (place.previous == none ? oldest_ : places_[place.previous].next) = place.next;
    (place.next == none ? newest_ : places_[place.next].previous) = place.previous;
    // Closing alone would not end the watch: a child may hold the same open file description (epoll(7), Q6).
    poller_.remove(place.fd.get());
    ++place.age;
    place.previous = none;
    place.next = free_;
    free_ = index;
    --size_;
    return std::move(place.fd);
}

}  // namespace cede::pm
