// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/engine.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace cede::bench {

namespace {

// Timeouts and refused connects are dealt with this often: a client whose connect is refused does not spin.
constexpr Nanoseconds sweep_interval = 10 * millisecond;
constexpr std::uint32_t read_events = EPOLLIN | EPOLLRDHUP | EPOLLET;

}  // namespace

Engine::Engine(EngineSettings settings)
    : settings_(std::move(settings)),
      expected_(settings_.check_body ? std::string_view{settings_.expected} : std::string_view{}),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      slots_(settings_.slots),
      connections_(std::size_t{settings_.slots} * 2),
      pools_(settings_.pools) {
    if (epoll_ < 0) {
        throw std::system_error(errno, std::system_category(), "epoll_create1");
    }
    for (std::uint32_t index = 0; index < connections_.size(); ++index) {
        unused_.push_back(index);
    }
    std::ranges::reverse(unused_);
    for (Pool& pool : pools_) {
        pool.idle.reserve(connections_.size());
    }
}

Engine::~Engine() {
    for (const Connection& connection : connections_) {
        if (connection.fd >= 0) {
            ::close(connection.fd);
        }
    }
    ::close(epoll_);
}

std::uint32_t Engine::open_connection(const Slot& slot) {
    if (unused_.empty()) {
        return none;
    }
    const int fd = settings_.target.connect();
    if (fd < 0) {
        return none;
    }
    const std::uint32_t index = unused_.back();
    epoll_event event{.events = read_events, .data = {.u32 = index}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
        ::close(fd);
        return none;
    }
    unused_.pop_back();
    Connection& connection = connections_[index];
    connection.fd = fd;
    connection.pool = slot.pool;
    connection.owner = none;
    connection.reused = false;
    ++counters_.connects;
    if (Pool& pool = pools_[slot.pool]; pool.lost > 0) {
        --pool.lost;
        ++counters_.reconnects;
    }
    return index;
}

std::uint32_t Engine::choose_connection(Slot& slot, SlotIndex index) {
    if (settings_.keep_alive && !slot.retried) {
        std::vector<std::uint32_t>& idle = pools_[slot.pool].idle;
        std::uint32_t kept = none;
        if (slot.use == Use::own) {
            kept = slot.own;
        } else if (slot.use == Use::pooled && !idle.empty()) {
            kept = idle.back();
            idle.pop_back();
        }
        if (kept != none) {
            connections_[kept].reused = true;
            return kept;
        }
    }
    const std::uint32_t opened = open_connection(slot);
    if (opened != none && settings_.keep_alive && slot.use == Use::own) {
        slot.own = opened;
        connections_[opened].owner = index;
    }
    return opened;
}

void Engine::place(SlotIndex index) {
    Slot& slot = slots_[index];
    slot.connection = choose_connection(slot, index);
    if (slot.connection == none) {
        slot.connect_failed = true;
        return;
    }
    Connection& connection = connections_[slot.connection];
    connection.slot = index;
    connection.sent = 0;
    connection.sending = false;
    connection.answer = Answer{expected_};
    send_request(slot.connection);
}

void Engine::start(SlotIndex index, std::uint32_t pool, Use use, const std::vector<std::byte>& request,
                   Nanoseconds scheduled) {
    Slot& slot = slots_[index];
    slot.request = &request;
    slot.scheduled = scheduled;
    slot.started = now();
    slot.pool = pool;
    slot.use = use;
    slot.busy = true;
    slot.retried = false;
    slot.connect_failed = false;
    ++under_way_;
    place(index);
}

// An error of send() is left to recv(), which reports the same one: an epoll event is certain to follow.
void Engine::send_request(std::uint32_t index) {
    Connection& connection = connections_[index];
    const std::vector<std::byte>& request = *slots_[connection.slot].request;
    const ssize_t sent = ::send(connection.fd, request.data() + connection.sent,
                                request.size() - connection.sent, MSG_NOSIGNAL);
    if (sent > 0) {
        connection.sent += static_cast<std::size_t>(sent);
    }
    const bool wait = connection.sent < request.size() && (sent >= 0 || errno == EAGAIN || errno == ENOTCONN);
    if (wait != connection.sending) {
        connection.sending = wait;
        epoll_event event{.events = read_events | (wait ? std::uint32_t{EPOLLOUT} : 0U),
                          .data = {.u32 = index}};
        epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
    }
}

void Engine::forget_idle(std::uint32_t index) noexcept {
    std::vector<std::uint32_t>& idle = pools_[connections_[index].pool].idle;
    idle.erase(std::remove(idle.begin(), idle.end(), index), idle.end());
}

void Engine::close_connection(std::uint32_t index) noexcept {
    Connection& connection = connections_[index];
    ::close(connection.fd);
    connection.fd = -1;
    connection.slot = none;
    if (connection.owner != none) {
        slots_[connection.owner].own = none;
    }
    unused_.push_back(index);
}

void Engine::close_own(SlotIndex slot) noexcept {
    if (slots_[slot].own != none) {
        close_connection(slots_[slot].own);
    }
}

void Engine::finish(SlotIndex index, Failure failure, Listener& listener) {
    Slot& slot = slots_[index];
    slot.busy = false;
    slot.connection = none;
    --under_way_;
    listener.finished({index, failure, slot.scheduled, now()});
}

void Engine::answered(std::uint32_t index, bool peer_closed, Listener& listener) {
    Connection& connection = connections_[index];
    const SlotIndex slot_index = connection.slot;
    const Slot& slot = slots_[slot_index];
    const Failure failure = connection.answer.failure();
    connection.slot = none;
    const bool keep =
        settings_.keep_alive && slot.use != Use::fresh && failure == Failure::none && !peer_closed;
    if (!keep) {
        if (settings_.keep_alive && peer_closed) {
            ++pools_[connection.pool].lost;
        }
        close_connection(index);
    } else if (slot.use == Use::pooled) {
        pools_[connection.pool].idle.push_back(index);
    }
    finish(slot_index, failure, listener);
}

void Engine::peer_gone(std::uint32_t index, Failure how, Listener& listener) {
    Connection& connection = connections_[index];
    const SlotIndex slot_index = connection.slot;
    if (slot_index == none) {
        ++counters_.closed_idle;
        ++pools_[connection.pool].lost;
        forget_idle(index);
        close_connection(index);
        return;
    }
    Slot& slot = slots_[slot_index];
    const bool retry = connection.reused && connection.answer.untouched() && !slot.retried;
    const bool never_connected = !connection.reused && connection.sent == 0;
    if (connection.reused) {
        ++pools_[connection.pool].lost;
    }
    close_connection(index);
    if (never_connected) {
        slot.connect_failed = true;
    } else if (retry) {
        ++counters_.retries;
        slot.retried = true;
        place(slot_index);
    } else {
        finish(slot_index, how, listener);
    }
}

void Engine::receive(std::uint32_t index, std::uint32_t events, Listener& listener) {
    Connection& connection = connections_[index];
    for (;;) {
        const ssize_t size = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
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
        if (connection.slot == none) {
            peer_gone(index, Failure::protocol, listener);
            return;
        }
        const auto bytes = protocol::Bytes{buffer_}.first(static_cast<std::size_t>(size));
        if (connection.answer.feed(bytes) == Answer::State::complete) {
            answered(index, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0, listener);
            return;
        }
        // Edge-triggered: what comes after a short read makes an event of its own, unless it was reported
        // already.
        if (bytes.size() < buffer_.size() && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) {
            return;
        }
    }
}

void Engine::handle(std::uint32_t index, std::uint32_t events, Listener& listener) {
    // A connection may have been closed, and its place taken by another, since the kernel reported this
    // event: the socket calls on the new one then find nothing to do.
    if (connections_[index].fd < 0) {
        return;
    }
    if (connections_[index].sending && (events & EPOLLOUT) != 0) {
        send_request(index);
    }
    if ((events & ~std::uint32_t{EPOLLOUT}) != 0) {
        receive(index, events, listener);
    }
}

void Engine::sweep(Nanoseconds at, Listener& listener) {
    next_sweep_ = at + sweep_interval;
    for (SlotIndex index = 0; under_way_ > 0 && index < slots_.size(); ++index) {
        const Slot& slot = slots_[index];
        if (!slot.busy) {
            continue;
        }
        if (slot.connect_failed) {
            finish(index, Failure::connect, listener);
        } else if (at - slot.started > settings_.patience) {
            close_connection(slot.connection);
            finish(index, Failure::timeout, listener);
        }
    }
}

void Engine::step(Listener& listener, Nanoseconds until) {
    std::array<epoll_event, 256> events;
    const Nanoseconds at = now();
    const Nanoseconds wait = std::clamp<Nanoseconds>(std::min(until, next_sweep_) - at, 0, sweep_interval);
    const timespec timeout{.tv_sec = wait / second, .tv_nsec = wait % second};
    const int count = epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
    for (int each = 0; each < count; ++each) {
        const epoll_event& event = events[static_cast<std::size_t>(each)];
        handle(event.data.u32, event.events, listener);
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
