// SPDX-License-Identifier: Apache-2.0
#include "pm/waiting_room.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "children/clock.h"
#include "pm/log.h"

namespace cede::pm {

using children::UniqueFd;

namespace {

// In one turn of the loop: some milliseconds' worth.
constexpr std::size_t most_pulled = 512;
constexpr std::size_t most_refused = 512;
constexpr std::uint64_t abandoned_interval_ns = 100'000'000;
constexpr std::uint64_t shortage_pause_ns = 1'000'000'000;
constexpr int least_backlog = 16;
constexpr std::uint64_t grain_ns = 20'000'000;

bool has_hung_up(int fd) noexcept {
    pollfd watched{fd, POLLRDHUP, 0};
    return poll(&watched, 1, 0) > 0;
}

// The peer has gone, or said that it sends no more: a web server that wants its answer does not.
[[nodiscard]] std::vector<bool> peers_gone(std::span<const Handoff::Ready> some) {
    std::vector<pollfd> watched(some.size());
    std::ranges::transform(some, watched.begin(), [](const Handoff::Ready& ready) {
        return pollfd{ready.connection.get(), POLLRDHUP, 0};
    });
    std::vector<bool> gone(some.size(), false);
    if (poll(watched.data(), watched.size(), 0) > 0) {
        std::transform(watched.begin(), watched.end(), gone.begin(), [](const pollfd& one) {
            return (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        });
    }
    return gone;
}

}  // namespace

WaitingRoom::WaitingRoom(Handoff& handoff, std::span<Listener> listeners, Exits exits)
    : handoff_{handoff}, listeners_{listeners}, exits_{std::move(exits)} {}

void WaitingRoom::set(Settings settings) {
    const bool limited = settings.max_wait.count() > 0;
    if (limited != (settings_.max_wait.count() > 0)) {
        handoff_.remember(limited);
        handoff_.set_order(false, most_handed(false, 0, {}));
    }
    settings_ = std::move(settings);
    rules_ = {settings_.max_wait, settings_.overload, !settings_.ping_path.empty(), settings_.reserve};
}

void WaitingRoom::push(UniqueFd connection, std::uint64_t since_ns, bool pressure) {
    if (pressure && (rules_.answers_pings || rules_.overload == Overload::reject)) {
        look_at(std::move(connection), since_ns, false);
    } else {
        handoff_.push(std::move(connection), since_ns);
    }
}

void WaitingRoom::tend(const Moment& moment) {
    children_ = moment.children;
    in_vain_ = moment.in_vain;
    if (std::exchange(pressure_, moment.pressure) != moment.pressure && moment.pressure) {
        look_at_all();
    }
    if (moment.pressure) {
        if (!moment.answered.empty()) {
            rate_.sample(moment.answered, moment.now_ns);
        }
        const ListenQueue queue{moment.listen_age, true, handoff_.backed_up(), moment.draining};
        if (accept_now(rules_, queue)) {
            pull(moment);
        }
    } else {
        rate_.pause();
    }
    drop_abandoned_waiters(moment.now_ns);
    refuse_overdue_waiters(moment);
}

// --- who comes in ---

void WaitingRoom::pull(const Moment& moment) {
    if (moment.now_ns < pull_due_ns_ || protocol_ == protocol::Protocol::unknown) {
        return;
    }
    std::size_t granted = 0;
    for (const Listener& listener : listeners_) {
        granted += static_cast<std::size_t>(std::max(listener.backlog_granted, least_backlog));
    }
    // No more than the kernel would let wait.
    const std::size_t waiting = handoff_.queued();
    const std::size_t most =
        std::min({granted > waiting ? granted - waiting : 0, moment.places, most_pulled});
    // In turn, so that a flood on one keeps nobody waiting on another.
    std::vector<Handoff::Ready> arrived;
    const std::size_t share = (most + listeners_.size() - 1) / listeners_.size();
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        Listener& listener = listeners_[(first_listener_ + i) % listeners_.size()];
        if (!accept_from(listener, std::min(most, arrived.size() + share), arrived, moment)) {
            pull_due_ns_ = moment.now_ns + shortage_pause_ns;
            break;
        }
    }
    first_listener_ = (first_listener_ + 1) % listeners_.size();
    counts_.pulled += arrived.size();
    drop_abandoned(arrived);
    for (Handoff::Ready& ready : arrived) {
        look_at(std::move(ready.connection), ready.since_ns, true);
    }
}

// False: there is no room for more in this process.
bool WaitingRoom::accept_from(Listener& listener, std::size_t most, std::vector<Handoff::Ready>& into,
                              const Moment& moment) {
    // It is shared with the children, of which one may have cleared the flag (fcntl(2)): never block here.
    if (const int flags = fcntl(listener.fd.get(), F_GETFL); (flags & O_NONBLOCK) == 0) {
        fcntl(listener.fd.get(), F_SETFL, flags | O_NONBLOCK);
    }
    while (into.size() < most) {
        UniqueFd connection{accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (connection) {
            std::uint64_t since = waiting_since(listener, connection.get(), moment, into.size());
            // The kernel's clock ticks in milliseconds, and goes on while we accept: who came together stays
            // in order.
            if (!into.empty() && since < into.back().since_ns && into.back().since_ns - since < grain_ns) {
                since = into.back().since_ns;
            }
            into.push_back({std::move(connection), since});
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log(LogLevel::warning,
                "requests stay in the listen queue, for want of descriptors or memory: {}; raise the limit "
                "of open files (LimitNOFILE=, ulimit -n)",
                std::strerror(errno));
            return false;
        }
        if (errno != ECONNABORTED && errno != EINTR) {
            break;
        }
    }
    return true;
}

// tcp(7), TCP_INFO: milliseconds since something last came. Another socket can't say; it has waited no longer
// than the first in the queue.
std::uint64_t WaitingRoom::waiting_since(const Listener& listener, int connection, const Moment& moment,
                                         std::size_t in_front) const {
    std::chrono::nanoseconds waited = moment.age_behind ? moment.age_behind(in_front) : moment.listen_age;
    if (listener.kind != Listener::Kind::unix_stream) {
        tcp_info info{};
        socklen_t size = sizeof info;
        if (getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
            waited = std::chrono::milliseconds{info.tcpi_last_data_recv};
        }
    }
    const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(), 0));
    return moment.now_ns - std::min(moment.now_ns, count);
}

// --- what becomes of them ---

void WaitingRoom::look_at(UniqueFd connection, std::uint64_t since_ns, bool is_new) {
    const int fd = connection.get();
    const RequestPeek peek = peek_request(fd, protocol_);
    switch (peek.kind) {
        case RequestPeek::Kind::gone:
            ++counts_.abandoned;
            return;
        case RequestPeek::Kind::silent:
            // One that was handed over for its request, and has none: as without us, a child sees to it.
            is_new ? exits_.silent(std::move(connection)) : handoff_.push(std::move(connection), since_ns);
            return;
        case RequestPeek::Kind::partial:
            if (settings_.run_abandoned && has_hung_up(fd)) {
                handoff_.push(std::move(connection), since_ns, true);
            } else {
                exits_.partial(std::move(connection), since_ns);
            }
            return;
        case RequestPeek::Kind::broken:
            handoff_.push(std::move(connection), since_ns);
            return;
        case RequestPeek::Kind::ready:
            break;
    }
    if (asks_for(protocol_, peek, settings_.ping_path)) {
        ++counts_.pings;
        dispose(std::move(connection), answer_ping(fd, protocol_, peek));
    } else if (in_vain_ && peek.has_head() &&
               is_hopeless(rules_, handoff_.waiting(), rate_.per_second(children_))) {
        ++counts_.overdue;
        dispose(std::move(connection), refuse_overdue(fd, protocol_, peek, settings_.max_wait));
    } else {
        handoff_.push(std::move(connection), since_ns);
    }
}

// Those who came before there was anything to look for.
void WaitingRoom::look_at_all() {
    if (!rules_.answers_pings || protocol_ == protocol::Protocol::unknown) {
        return;
    }
    handoff_.take_back(std::numeric_limits<std::uint64_t>::max());
    auto waiting = std::exchange(handoff_.queue(), {});
    for (Handoff::Ready& ready : waiting) {
        if (ready.as_it_is) {
            handoff_.push(std::move(ready.connection), ready.since_ns, true);
        } else {
            look_at(std::move(ready.connection), ready.since_ns, false);
        }
    }
}

void WaitingRoom::dispose(UniqueFd connection, Answered answered) {
    switch (answered) {
        case Answered::kept:
            exits_.kept(std::move(connection));
            break;
        case Answered::ended:
            exits_.ended(std::move(connection));
            break;
        case Answered::failed:
            break;
    }
}

void WaitingRoom::drop_abandoned(std::vector<Handoff::Ready>& some) {
    if (settings_.run_abandoned || some.empty()) {
        return;
    }
    const std::vector<bool> gone = peers_gone(some);
    std::size_t index = 0;
    counts_.abandoned += std::erase_if(some, [&](const Handoff::Ready&) { return gone[index++]; });
}

void WaitingRoom::drop_abandoned_waiters(std::uint64_t now_ns) {
    auto& queue = handoff_.queue();
    if (settings_.run_abandoned || queue.empty() || now_ns < abandoned_due_ns_) {
        return;
    }
    abandoned_due_ns_ = now_ns + abandoned_interval_ns;
    std::vector<Handoff::Ready> some(std::move_iterator{queue.begin()}, std::move_iterator{queue.end()});
    drop_abandoned(some);
    queue.assign(std::move_iterator{some.begin()}, std::move_iterator{some.end()});
}

void WaitingRoom::refuse_overdue_waiters(const Moment& moment) {
    const std::uint64_t now_ns = moment.now_ns;
    const auto limit = static_cast<std::uint64_t>(rules_.max_wait.count());
    if (limit == 0 || protocol_ == protocol::Protocol::unknown || now_ns <= limit) {
        return;
    }
    auto& queue = handoff_.queue();
    const auto decide = [&] {
        std::vector<std::uint64_t> since(queue.size());
        std::ranges::transform(queue, since.begin(), &Handoff::Ready::since_ns);
        return judge(rules_, since, last_overdue_ns_, now_ns);
    };
    Judgement judgement = decide();
    // Of those in the kernel none can be passed over: to be put into another order they are taken back.
    if (handoff_.take_back(judgement.newest_first ? now_ns : now_ns - limit) > 0) {
        judgement = decide();
    }
    for (std::size_t i = 0; i < std::min(judgement.overdue, most_refused); ++i) {
        Handoff::Ready ready = std::move(queue.front());
        queue.pop_front();
        last_overdue_ns_ = now_ns;
        refuse(std::move(ready.connection), ready.since_ns);
    }
    handoff_.set_order(judgement.newest_first,
                       most_handed(judgement.newest_first, moment.children, rate_.per_second(children_)));
}

void WaitingRoom::refuse(UniqueFd connection, std::uint64_t since_ns) {
    const int fd = connection.get();
    const RequestPeek peek = peek_request(fd, protocol_);
    if (peek.kind == RequestPeek::Kind::gone) {
        ++counts_.abandoned;
    } else if (peek.kind == RequestPeek::Kind::silent) {
        exits_.kept(std::move(connection));
    } else if (peek.kind == RequestPeek::Kind::partial && !peek.has_head()) {
        exits_.partial(std::move(connection), since_ns);
    } else {
        if (asks_for(protocol_, peek, settings_.ping_path)) {
            ++counts_.pings;
            dispose(std::move(connection), answer_ping(fd, protocol_, peek));
            return;
        }
        // Who does not speak our protocol gets no answer in it.
        ++counts_.overdue;
        if (peek.has_head()) {
            dispose(std::move(connection), refuse_overdue(fd, protocol_, peek, settings_.max_wait));
        }
    }
}

}  // namespace cede::pm
