// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <sys/epoll.h>
#include <vector>

#include "children/unique_fd.h"

namespace cede::pm {

// One epoll(7) instance for all descriptors that come by the thousand or need flags that Asio can not set. It
// is itself watched by Asio, as one descriptor, so that a burst of events costs the loop one turn
// (docs/design/0002-two-epolls.md).
class Poller {
  public:
    enum class Kind : std::uint8_t {
        listener,
        zygote,
        child,
        parked,
        fresh,
        partial,
        leaving,
        lingering,
        handoff,
        output
    };

    // Names a descriptor in an event. `age` tells a new user of an index from an old one within a batch.
    struct Tag {
        Kind kind = Kind::listener;
        std::uint32_t index = 0;
        std::uint16_t age = 0;
    };
    struct Event {
        Tag tag;
        std::uint32_t flags = 0;  // EPOLLIN, ...
    };

    Poller();  // throws std::system_error
    [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

    // False with errno on failure (ENOMEM, ENOSPC: fs.epoll.max_user_watches).
    bool add(int fd, std::uint32_t flags, Tag tag) noexcept;
    void remove(int fd) noexcept;

    // What has happened, without waiting; at the most one batch. Valid until the next call.
    std::span<const Event> poll();

  private:
    children::UniqueFd epoll_;
    std::vector<epoll_event> raw_;
    std::vector<Event> events_;
};

}  // namespace cede::pm
