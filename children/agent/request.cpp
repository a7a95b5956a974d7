// SPDX-License-Identifier: Apache-2.0
#include "children/agent/request.h"

#include <cstring>
#include <string_view>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "children/agent/agent.h"
#include "children/agent/arrival.h"
#include "children/agent/give_away.h"
#include "children/agent/libc.h"
#include "children/agent/voice.h"
#include "children/clock.h"
#include "children/own_answers.h"
#include "children/whole_request.h"
#include "protocol/request_head.h"
#include "protocol/short_answer.h"

namespace cede::agent {

using children::ChildSays;
using children::Wholeness;
using protocol::Outcome;
using protocol::RequestHead;
using protocol::ShortAnswer;

namespace {

// Web servers that send a request in several pieces send them right behind each other.
constexpr int moment_ms = 1;
constexpr std::uint64_t all_moments_ns = 4'000'000;
constexpr std::size_t largest_answer = 512;

bool is_part(const RequestHead& head) noexcept {
    return children::wholeness_of(agent.protocol, head, agent.connection.peeked()) == Wholeness::part;
}

// What has been seen stays in the socket, so that only an edge tells of more.
class Patience {
  public:
    Patience() noexcept : epoll_{epoll_create1(EPOLL_CLOEXEC)} {
        epoll_event event{};
        event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
        epoll_ctl(epoll_, EPOLL_CTL_ADD, agent.connection.fd(), &event);
        (void)next(0);  // what was there before
    }
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;
    ~Patience() { libc().close(epoll_); }

    // Something has come. `gone`: the peer will send no more.
    bool next(int timeout_ms) noexcept {
        epoll_event event{};
        if (epoll_wait(epoll_, &event, 1, timeout_ms) <= 0) {
            return false;
        }
        gone = gone || (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        return true;
    }
    bool gone = false;

  private:
    int epoll_;
};

// The rest of a request that is incomplete: for a moment.
Taken wait_for_rest(RequestHead& head, bool& hung_up) noexcept {
    Connection& connection = agent.connection;
    Patience patience;
    const std::uint64_t deadline = children::monotonic_ns() + all_moments_ns;
    do {
        const Connection::Fill got = connection.peek();
        if (got != Connection::Fill::data) {
            return Taken::gone;
        }
        head = protocol::read_request_head(agent.protocol, connection.peeked());
    } while (is_part(head) && !patience.gone && children::monotonic_ns() < deadline &&
             patience.next(moment_ms));
    hung_up = hung_up || patience.gone;
    if (!is_part(head)) {
        return Taken::buffered;
    }
    if (hung_up && agent.control->run_abandoned.load(std::memory_order_relaxed) == 0) {
        return Taken::gone;  // the rest never comes
    }
    if (!hung_up && give_away(ChildSays::park_partial)) {
        count(agent.slot->parked);
        return Taken::gone;
    }
    return Taken::buffered;
}

bool is_ping(protocol::Bytes head) noexcept {
    const char* const path = agent.slot->ping_path;
    const std::size_t length = strnlen(path, sizeof agent.slot->ping_path);
    if (length == 0) {
        return false;
    }
    std::byte name[sizeof agent.slot->ping_path];
    const auto size = protocol::find_variable(agent.protocol, head, "SCRIPT_NAME", name);
    return size && *size == length && std::memcmp(name, path, length) == 0;
}

bool is_overdue(std::uint64_t waited_us) noexcept {
    constexpr std::uint64_t us_in_ms = 1000;
    const std::uint64_t limit = agent.control->max_wait_ms.load(std::memory_order_relaxed);
    return limit != 0 && waited_us > limit * us_in_ms;
}

// In decimal, to the end of this memory.
template <std::size_t size>
std::string_view decimal(char (&memory)[size], std::uint64_t value) noexcept {
    std::size_t first = size;
    do {
        memory[--first] = static_cast<char>('0' + value % 10);
        value /= 10;
    } while (value > 0 && first > 0);
    return {memory + first, size - first};
}

// In place of PHP. The connection goes on if it is to be kept and nothing of the request is still to come.
Taken answer(const RequestHead& head, const ShortAnswer& text) noexcept {
    Connection& connection = agent.connection;
    std::byte memory[largest_answer];
    const std::size_t size = protocol::write_short_answer(agent.protocol, memory, head.id, text);
    const ssize_t sent = libc().send(connection.fd(), memory, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    const bool whole = sent == static_cast<ssize_t>(size);
    if (whole && head.request_complete && head.keep_connection) {
        agent.newly_accepted = false;
        connection.skip(head.request_size);
        return connection.buffered() ? Taken::buffered : Taken::nothing;
    }
    // A close while its peer still sends would reset the connection, which overtakes the answer.
    if (!whole || head.request_complete || !give_away(ChildSays::linger)) {
        libc().shutdown(connection.fd(), SHUT_WR);
    }
    return Taken::gone;
}

Taken answer_ping(const RequestHead& head) noexcept {
    count(agent.slot->pings);
    return answer(head, children::pong);
}

Taken refuse(const RequestHead& head) noexcept {
    constexpr std::uint64_t ms_in_s = 1000;
    constexpr std::string_view name = "Retry-After: ";
    char digits[20];
    const std::string_view seconds =
        decimal(digits, (agent.control->max_wait_ms.load(std::memory_order_relaxed) + ms_in_s - 1) / ms_in_s);
    char line[name.size() + sizeof digits];
    std::memcpy(line, name.data(), name.size());
    std::memcpy(line + name.size(), seconds.data(), seconds.size());
    const std::string_view lines[] = {{line, name.size() + seconds.size()}};
    count(agent.slot->overdue);
    return answer(head, children::too_busy(lines));
}

void pass_queue_time(const RequestHead& head, std::uint64_t waited_us) noexcept {
    char digits[20];
    agent.connection.add_variable(head.head_size, "CEDE_QUEUE_USEC", decimal(digits, waited_us));
}

// A request whose head is complete is in the buffer.
Taken judge(const RequestHead& head, bool hung_up) noexcept {
    Connection& connection = agent.connection;
    const Wait wait = look_at_arrival(hung_up);
    if (wait.peer_gone && agent.control->run_abandoned.load(std::memory_order_relaxed) == 0) {
        count(agent.slot->abandoned);
        return Taken::gone;
    }
    const protocol::Bytes bytes = connection.unread().first(head.head_size);
    if (is_ping(bytes)) {
        return answer_ping(head);
    }
    const auto told = wait_by_web_server(bytes);
    const std::uint64_t waited_us = told.value_or(wait.waited_us);
    if ((told || wait.certain) && is_overdue(waited_us)) {
        return refuse(head);
    }
    connection.waited_us = waited_us;
    if (agent.control->pass_queue_time.load(std::memory_order_relaxed) != 0) {
        pass_queue_time(head, waited_us);
    }
    return Taken::buffered;
}

// Who came from a queue and was reset meanwhile has had a request there.
Taken end_of(Connection::Fill got) noexcept {
    const Arrival arrival = std::exchange(agent.arrival, {});
    if (arrival.from == Arrival::From::handoff ||
        (arrival.from == Arrival::From::listener && got == Connection::Fill::failed)) {
        count(agent.slot->abandoned);
    }
    return Taken::gone;
}

}  // namespace

Taken take_request(bool hung_up) noexcept {
    Connection& connection = agent.connection;
    const Connection::Fill got = connection.peek();
    switch (got) {
        case Connection::Fill::data:
            break;
        case Connection::Fill::nothing:
            agent.arrival = {};  // a child is there before the request
            return Taken::nothing;
        case Connection::Fill::interrupted:
            return Taken::interrupted;
        case Connection::Fill::end:
        case Connection::Fill::failed:
            return end_of(got);
    }
    RequestHead head = protocol::read_request_head(agent.protocol, connection.peeked());
    if (is_part(head) && !agent.arrival.as_it_is && can_be_given_away()) {
        if (const Taken taken = wait_for_rest(head, hung_up); taken != Taken::buffered) {
            return taken;
        }
    }
    if (children::wholeness_of(agent.protocol, head, connection.peeked()) == Wholeness::leftover) {
        if (connection.take_peeked(connection.peeked().size()) == Connection::Fill::data) {
            (void)connection.admit();
            connection.discard_buffer();
        }
        return Taken::nothing;
    }
    // Behind a question of FastCGI's, which PHP answers, a request may come, to be looked at by itself.
    const std::size_t size = head.management ? head.request_size : connection.peeked().size();
    if (connection.take_peeked(size) != Connection::Fill::data) {
        return Taken::gone;
    }
    if (head.management) {
        return Taken::buffered;
    }
    if (head.outcome == Outcome::done) {
        return judge(head, hung_up);
    }
    agent.arrival = {};  // of what is on its way nobody can say any more how long it has waited
    return Taken::buffered;
}

}  // namespace cede::agent
