// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/engine.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace cede::bench {

namespace {

// Timeouts and refused connects are dealt with this often: a client whose connect is refused does not spin.
constexpr Nanoseconds sweep_interval = 10 * millisecond;
constexpr Nanoseconds backlog_retry = second;

// Every slot may have a connection of its own and another one under way; pools keep idle ones besides.
std::size_t most_connections(const EngineSettings& settings) {
    const std::size_t of_slots = std::size_t{settings.slots} * 2;
    return settings.max_connections == WebServer::unlimited
               ? of_slots
               : of_slots + std::size_t{std::min(settings.max_connections, settings.slots)} * settings.pools;
}

EngineSettings with_default_limit(EngineSettings settings) {
    if (settings.max_connections == 0) {
        settings.max_connections = settings.server->max_connections();
    }
    return settings;
}

}  // namespace

Engine::Engine(EngineSettings settings)
    : settings_(with_default_limit(std::move(settings))),
      server_(*settings_.server),
      expected_(settings_.check_body ? std::string_view{settings_.expected} : std::string_view{}),
      slots_(settings_.slots),
      pools_(settings_.pools),
      connections_(most_connections(settings_), settings_.target, server_) {}

std::optional<std::uint32_t> Engine::kept_connection(const Slot& slot) {
    if (!settings_.keep_alive || slot.use == Use::fresh) {
        return std::nullopt;
    }
    if (slot.use == Use::own) {
        return slot.own == none ? std::nullopt : std::optional{slot.own};
    }
    std::vector<std::uint32_t>& idle = pools_[slot.pool].idle;
    if (idle.empty()) {
        return std::nullopt;
    }
    const std::uint32_t latest = idle.back();
    idle.pop_back();
    return latest;
}

std::expected<std::uint32_t, int> Engine::open_connection(SlotIndex index) {
    const auto opened = connections_.open(now());
    if (!opened) {
        return opened;
    }
    Slot& slot = slots_[index];
    Pool& pool = pools_[slot.pool];
    Connection& connection = connections_[*opened];
    connection.pool = slot.pool;
    connection.pooled = slot.use == Use::pooled;
    pool.open += std::uint32_t{connection.pooled};
    if (settings_.keep_alive && slot.use == Use::own) {
        slot.own = *opened;
        connection.owner = index;
    }
    ++counters_.connects;
    if (pool.lost > 0) {
        --pool.lost;
        ++counters_.reconnects;
    }
    return opened;
}

void Engine::put_off(SlotIndex index) {
    slots_[index].waiting = true;
    pools_[slots_[index].pool].waiting.push_front(index);
}

// False: the request is in front of those that wait for a connection.
bool Engine::place(SlotIndex index, bool on_new_one) {
    Slot& slot = slots_[index];
    Pool& pool = pools_[slot.pool];
    auto connection = on_new_one ? std::nullopt : kept_connection(slot);
    if (connection) {
        connections_[*connection].reused = true;
    } else {
        if (slot.use == Use::pooled && pool.open >= settings_.max_connections) {
            put_off(index);
            return false;
        }
        const auto opened = open_connection(index);
        if (!opened && opened.error() == EAGAIN && server_.waits_for_backlog()) {
            ++counters_.backlog_full;
            pool.retry_at = now() + backlog_retry;
            put_off(index);
            return false;
        }
        if (!opened) {
            slot.connect_failed = true;
            return true;
        }
        connection = *opened;
    }
    slot.connection = *connection;
    connections_[*connection].slot = index;
    connections_.send(*connection, *slot.request);
    return true;
}

void Engine::serve_waiting(Pool& pool) {
    bool placed = true;
    while (placed && !pool.waiting.empty()) {
        const SlotIndex first = pool.waiting.front();
        pool.waiting.pop_front();
        slots_[first].waiting = false;
        placed = place(first, false);
    }
}

void Engine::start(SlotIndex index, std::uint32_t pool_index, Use use, const std::vector<std::byte>& request,
                   Nanoseconds scheduled) {
    Slot& slot = slots_[index];
    Pool& pool = pools_[pool_index];
    slot.request = &request;
    slot.body = BodyCheck{expected_};
    slot.scheduled = scheduled;
    slot.started = now();
    slot.pool = pool_index;
    slot.connection = none;
    slot.losses = 0;
    slot.use = use;
    slot.busy = true;
    slot.connect_failed = false;
    ++under_way_;
    if (pool.waiting.empty() || use != Use::pooled) {
        counters_.waited += std::uint64_t{!place(index, false)};
        return;
    }
    ++counters_.waited;
    slot.waiting = true;
    pool.waiting.push_back(index);
    serve_waiting(pool);
}

void Engine::close_connection(std::uint32_t index) noexcept {
    const Connection& connection = connections_[index];
    if (connection.owner != none) {
        slots_[connection.owner].own = none;
    }
    pools_[connection.pool].open -= std::uint32_t{connection.pooled};
    connections_.close(index);
}

void Engine::close_own(SlotIndex slot) noexcept {
    if (slots_[slot].own != none) {
        close_connection(slots_[slot].own);
    }
}

// The other side's wish or doing.
void Engine::close_idle(std::uint32_t index) noexcept {
    Pool& pool = pools_[connections_[index].pool];
    ++pool.lost;
    std::erase(pool.idle, index);
    close_connection(index);
}

void Engine::finish(SlotIndex index, Failure failure, Listener& listener, bool reused) {
    Slot& slot = slots_[index];
    slot.busy = false;
    slot.connection = none;
    --under_way_;
    listener.finished({index, failure, slot.scheduled, now(), reused});
}

void Engine::answered(std::uint32_t index, bool hung_up, Listener& listener) {
    Connection& connection = connections_[index];
    Pool& pool = pools_[connection.pool];
    const SlotIndex slot_index = connection.slot;
    const Slot& slot = slots_[slot_index];
    const Failure failure = connection.answer->failure();
    const bool reused = connection.reused;
    const bool asked = connection.answer->closing();
    connection.slot = none;
    counters_.conn_closes += std::uint64_t{asked};
    const bool wanted = settings_.keep_alive && slot.use != Use::fresh;
    // A refusal is an answer like any other to a web server.
    const bool sound = failure == Failure::none || failure == Failure::refused;
    if (!wanted || !sound || hung_up || asked) {
        pool.lost += std::uint64_t{settings_.keep_alive && (hung_up || asked)};
        close_connection(index);
    } else if (slot.use == Use::pooled) {
        pool.idle.push_back(index);
    }
    serve_waiting(pool);
    finish(slot_index, failure, listener, reused);
}

void Engine::recover(SlotIndex index, const Loss& loss, Failure how, Listener& listener) {
    Slot& slot = slots_[index];
    slot.connection = none;
    switch (server_.remedy(loss)) {
        case Remedy::give_up:
            finish(index, how, listener);
            return;
        case Remedy::unavailable:
            finish(index, Failure::unavailable, listener);
            return;
        case Remedy::reconnect:
            ++counters_.retries;
            ++slot.losses;
            place(index, true);
            return;
        case Remedy::another:
            ++counters_.resent;
            counters_.resent_acknowledged += std::uint64_t{loss.acknowledged};
            ++slot.losses;
            place(index, false);
            return;
    }
}

void Engine::peer_gone(std::uint32_t index, Failure how, Listener& listener) {
    Connection& connection = connections_[index];
    const SlotIndex slot_index = connection.slot;
    if (slot_index == none) {
        ++counters_.closed_idle;
        close_idle(index);
        return;
    }
    Slot& slot = slots_[slot_index];
    Pool& pool = pools_[connection.pool];
    const bool never_connected = !connection.reused && connection.sent == 0;
    const Loss loss{.earlier = slot.losses,
                    .connected = true,
                    .reused = connection.reused,
                    .untouched = connection.answer->untouched(),
                    .acknowledged = connection.answer->acknowledged(),
                    .others_are_idle = !pool.idle.empty()};
    pool.lost += std::uint64_t{connection.reused};
    close_connection(index);
    slot.connection = none;
    if (never_connected) {
        slot.connect_failed = true;
    } else {
        recover(slot_index, loss, how, listener);
    }
    serve_waiting(pool);
}

// False: there is nothing more to read, the connection may be gone.
bool Engine::take(std::uint32_t index, protocol::Bytes bytes, bool hung_up, Listener& listener) {
    Connection& connection = connections_[index];
    if (connection.slot == none) {
        const Answer::Idle idle = connection.answer->feed_idle(bytes);
        if (idle == Answer::Idle::silent) {
            return true;
        }
        if (idle == Answer::Idle::close) {
            ++counters_.conn_closes;
            close_idle(index);
        } else {
            peer_gone(index, Failure::protocol, listener);
        }
        return false;
    }
    if (connection.answer->feed(bytes, slots_[connection.slot].body) == Answer::State::complete) {
        answered(index, hung_up, listener);
        return false;
    }
    return true;
}

void Engine::receive(std::uint32_t index, bool hung_up, Listener& listener) {
    for (;;) {
        const ssize_t size = ::recv(connections_[index].fd, buffer_.data(), buffer_.size(), 0);
        if (size < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                peer_gone(index, Failure::reset, listener);
            }
            return;
        }
        if (size == 0) {
            peer_gone(index, Failure::closed, listener);
            return;
        }
        const auto bytes = protocol::Bytes{buffer_}.first(static_cast<std::size_t>(size));
        const bool all_read = bytes.size() < buffer_.size();
        if (!take(index, bytes, hung_up, listener)) {
            // A full buffer: more may lie in the socket, and no event would tell.
            if (all_read || connections_[index].fd < 0) {
                return;
            }
            continue;
        }
        // Edge-triggered: what comes after a short read makes an event of its own, unless it was reported
        // already.
        if (all_read && !hung_up) {
            return;
        }
    }
}

void Engine::give_up(SlotIndex index, Listener& listener) {
    Slot& slot = slots_[index];
    Pool& pool = pools_[slot.pool];
    if (slot.waiting) {
        slot.waiting = false;
        std::erase(pool.waiting, index);
    } else {
        const Connection& connection = connections_[slot.connection];
        const protocol::Bytes farewell = server_.farewell();
        if (!farewell.empty() && connection.sent == connection.request.size()) {
            counters_.aborted +=
                std::uint64_t{::send(connection.fd, farewell.data(), farewell.size(), MSG_NOSIGNAL) > 0};
        }
        close_connection(slot.connection);
        pool.retry_at = 0;  // for sweep(), once it knows who else gives up
    }
    finish(index, Failure::timeout, listener);
}

void Engine::check_slot(SlotIndex index, Nanoseconds at, Listener& listener) {
    Slot& slot = slots_[index];
    if (slot.connect_failed) {
        slot.connect_failed = false;
        recover(index, {.earlier = slot.losses, .connected = false}, Failure::connect, listener);
    } else if (at - slot.started > settings_.patience) {
        give_up(index, listener);
    } else if (slot.connection != none) {
        const Connection& connection = connections_[slot.connection];
        const bool connecting = !connection.reused && connection.sent == 0;
        if (connecting && at - connection.opened >= server_.connect_limit()) {
            peer_gone(slot.connection, Failure::connect, listener);
        }
    }
}

void Engine::sweep(Nanoseconds at, Listener& listener) {
    next_sweep_ = at + sweep_interval;
    for (SlotIndex index = 0; under_way_ > 0 && index < slots_.size(); ++index) {
        if (slots_[index].busy) {
            check_slot(index, at, listener);
        }
    }
    for (Pool& pool : pools_) {
        if (at >= pool.retry_at) {
            serve_waiting(pool);
        }
    }
}

void Engine::step(Listener& listener, Nanoseconds until) {
    const Nanoseconds longest =
        std::clamp<Nanoseconds>(std::min(until, next_sweep_) - now(), 0, sweep_interval);
    for (const epoll_event& event : connections_.wait(longest)) {
        const std::uint32_t index = event.data.u32;
        const std::uint32_t events = event.events;
        // A connection may have been closed, and its place taken by another, since the kernel reported this
        // event: the socket calls on the new one then find nothing to do.
        if (connections_[index].fd >= 0 && connections_[index].sending && (events & EPOLLOUT) != 0) {
            connections_.go_on_sending(index);
        }
        if (connections_[index].fd >= 0 && (events & ~std::uint32_t{EPOLLOUT}) != 0) {
            receive(index, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0, listener);
        }
    }
    if (const Nanoseconds later = now(); later >= next_sweep_) {
        sweep(later, listener);
    }
}

Nanoseconds Engine::oldest_age(Nanoseconds at) const noexcept {
    Nanoseconds oldest = 0;
    for (const Slot& slot : slots_) {
        if (slot.busy) {
            oldest = std::max(oldest, at - slot.started);
        }
    }
    return oldest;
}

}  // namespace cede::bench
