// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/slow_clients.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

namespace cede::bench {

SlowClients::SlowClients(const Target& target, const std::vector<std::byte>& request, std::uint32_t count,
                         Nanoseconds interval)
    : target_(target), request_(request), clients_(count), interval_(interval) {
    const Nanoseconds begin = now();
    for (std::uint32_t each = 0; each < count; ++each) {
        clients_[each].due = begin + interval * each / count;
    }
}

SlowClients::~SlowClients() {
    for (const Client& client : clients_) {
        if (client.fd >= 0) {
            ::close(client.fd);
        }
    }
}

std::uint32_t SlowClients::connected() const noexcept {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(clients_, [](const Client& client) { return client.fd >= 0; }));
}

void SlowClients::hear(Client& client) {
    char answer[4096];
    ssize_t size = 0;
    while ((size = ::recv(client.fd, answer, sizeof answer, MSG_DONTWAIT)) > 0) {
        client.told = true;
    }
    if (size < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINTR)) {
        return;
    }
    ++closed;
    told += std::uint64_t{client.told};
    ::close(client.fd);
    client = {.fd = -1, .sent = 0, .due = client.due, .told = false};
}

void SlowClients::send_one(Client& client) {
    if (client.fd < 0) {
        client.fd = target_.connect();
        connects += std::uint64_t{client.fd >= 0};
    }
    // The last byte is never sent: what is slow stays slow.
    if (client.fd >= 0 && client.sent + 1 < request_.size() &&
        ::send(client.fd, request_.data() + client.sent, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
        ++client.sent;
        ++bytes;
    }
}

void SlowClients::tick(Nanoseconds at) {
    for (Client& client : clients_) {
        if (client.due > at) {
            continue;
        }
        client.due += interval_ * (1 + (at - client.due) / interval_);
        if (client.fd >= 0) {
            hear(client);
        }
        send_one(client);
    }
}

}  // namespace cede::bench
