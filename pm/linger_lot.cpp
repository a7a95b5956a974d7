// SPDX-License-Identifier: Apache-2.0
#include "pm/linger_lot.h"

#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace cede::pm {

void LingerLot::add(children::UniqueFd connection, std::uint64_t since_ns) {
    shutdown(connection.get(), SHUT_WR);
    if (poller_.add(connection.get(), EPOLLIN | EPOLLRDHUP, places_.next(Poller::Kind::lingering))) {
        places_.put({std::move(connection), since_ns});
    }
}

void LingerLot::on_event(const Poller::Event& event) {
    const Place* const place = places_.find(event.tag);
    if (place == nullptr) {
        return;
    }
    static std::array<std::byte, 64 * 1024> dropped;
    const ssize_t got = recv(place->fd.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        leave(event.tag.index);
    }
}

void LingerLot::tend(std::uint64_t now_ns) {
    for (std::uint32_t index = 0; index < places_.end(); ++index) {
        const Place* const place = places_.at(index);
        if (place != nullptr && place->since_ns + longest_ns < now_ns) {
            leave(index);
        }
    }
}

void LingerLot::leave(std::uint32_t index) {
    const Place place = places_.take(index);
    poller_.remove(place.fd.get());
}

}  // namespace cede::pm
