// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/bench/clock.h"
#include "tests/bench/target.h"

namespace cede::bench {

// Clients that send one byte of a request each interval, and connect again when they are closed.
class SlowClients {
  public:
    // `request` must outlive them. Their first bytes are spread over one interval.
    SlowClients(const Target& target, const std::vector<std::byte>& request, std::uint32_t count,
                Nanoseconds interval);
    SlowClients(const SlowClients&) = delete;
    SlowClients& operator=(const SlowClients&) = delete;
    ~SlowClients();

    // Does what is due. Never waits.
    void tick(Nanoseconds at);

    // Those with a connection.
    [[nodiscard]] std::uint32_t connected() const noexcept;

    std::uint64_t connects = 0;  // the first one of each is counted
    std::uint64_t closed = 0;    // by the other side
    std::uint64_t told = 0;      // of these, with some bytes in front of the end
    std::uint64_t bytes = 0;     // sent

  private:
    struct Client {
        int fd = -1;
        std::size_t sent = 0;
        Nanoseconds due = 0;
        bool told = false;
    };

    void send_one(Client& client);
    void hear(Client& client);

    const Target& target_;
    const std::vector<std::byte>& request_;
    std::vector<Client> clients_;
    Nanoseconds interval_;
};

}  // namespace cede::bench
