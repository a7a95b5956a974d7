// SPDX-License-Identifier: Apache-2.0
#include "pm/control_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "pm/control_session.h"
#include "pm/log.h"

namespace cede::pm {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

constexpr std::size_t most_connections = 16;
// Users whose requests are refused anyway take nobody's place.
constexpr std::ptrdiff_t most_strangers = 4;
constexpr std::chrono::seconds pause_after_error{1};

bool may_command(const ucred& peer) noexcept {
    return peer.uid == 0 || peer.uid == ::geteuid();
}

ucred peer_of(int client) noexcept {
    ucred peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    socklen_t length = sizeof peer;
    ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    return peer;
}

}  // namespace

class ControlServer::Core : public std::enable_shared_from_this<Core> {
  public:
    Core(boost::asio::io_context& loop, children::UniqueFd listening, Actions actions)
        : loop_{loop},
          listening_{loop, listening.get()},
          pause_{loop},
          actions_{std::make_shared<const Actions>(std::move(actions))} {
        (void)listening.release();
    }

    void watch() {
        listening_.async_wait(stream_descriptor::wait_read, [weak = weak_from_this()](error_code error) {
            const auto self = weak.lock();
            if (!error && self && self->accept_all()) {
                self->watch();
            }
        });
    }

    [[nodiscard]] int descriptor() noexcept { return listening_.native_handle(); }
    [[nodiscard]] children::UniqueFd release() {
        pause_.cancel();
        return children::UniqueFd{listening_.is_open() ? listening_.release() : -1};
    }

    void close_all() noexcept {
        for (const auto& session : std::exchange(sessions_, {})) {
            session->close();
        }
    }

  private:
    // False: to be watched later.
    [[nodiscard]] bool accept_all() {
        for (;;) {
            // By hand, for Asio does not make it close-on-exec.
            children::UniqueFd client{
                ::accept4(listening_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
            if (client) {
                welcome(std::move(client));
            } else if (errno == EAGAIN) {
                return true;
            } else if (errno != EINTR && errno != ECONNABORTED) {
                log(LogLevel::warning,
                    "control socket: accept: {} (raise the limit of open files, ulimit -n)",
                    std::strerror(errno));
                rest();
                return false;
            }
        }
    }

    // What can't be accepted stays readable.
    void rest() {
        pause_.expires_after(pause_after_error);
        pause_.async_wait([weak = weak_from_this()](error_code error) {
            if (const auto self = weak.lock(); self && !error) {
                self->watch();
            }
        });
    }

    void welcome(children::UniqueFd client) {
        const ucred peer = peer_of(client.get());
        const bool stranger = !may_command(peer);
        if (stranger) {
            log(LogLevel::warning, "control socket: user {} may not use it (pid={}); refused", peer.uid,
                peer.pid);
        }
        if (!make_room(stranger)) {
            turn_away(std::move(client), "too many others use this socket; try again later");
            return;
        }
        sessions_.push_back(start_session(loop_, std::move(client), stranger, actions_,
                                          [weak = weak_from_this()](const ControlSession* session) {
                                              if (const auto self = weak.lock()) {
                                                  self->forget(session);
                                              }
                                          }));
    }

    // Who has sat here longest without a request makes room; strangers first.
    [[nodiscard]] bool make_room(bool stranger) {
        const auto strangers = std::ranges::count_if(
            sessions_, &ControlSession::stranger, [](const auto& session) -> auto& { return *session; });
        if (stranger && strangers >= most_strangers) {
            return false;
        }
        if (sessions_.size() < most_connections) {
            return true;
        }
        auto leaver =
            std::ranges::find_if(sessions_, [](const auto& session) { return session->stranger(); });
        if (leaver == sessions_.end() && !stranger) {
            leaver = std::ranges::find_if(sessions_, [](const auto& session) { return session->asking(); });
        }
        if (leaver == sessions_.end()) {
            return false;
        }
        const std::shared_ptr<ControlSession> leaving = *leaver;
        leaving->close();
        return true;
    }

    void forget(const ControlSession* session) noexcept {
        std::erase_if(sessions_, [session](const auto& one) { return one.get() == session; });
    }

    boost::asio::io_context& loop_;
    stream_descriptor listening_;
    boost::asio::steady_timer pause_;
    const std::shared_ptr<const Actions> actions_;
    std::vector<std::shared_ptr<ControlSession>> sessions_;  // in order of arrival
};

ControlServer::ControlServer(boost::asio::io_context& loop, children::UniqueFd listening, Actions actions)
    : core_{std::make_shared<Core>(loop, std::move(listening), std::move(actions))} {
    core_->watch();
}

ControlServer::~ControlServer() {
    core_->close_all();
}

int ControlServer::descriptor() const noexcept {
    return core_->descriptor();
}

children::UniqueFd ControlServer::release_acceptor() {
    return core_->release();
}

}  // namespace cede::pm
