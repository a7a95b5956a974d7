// SPDX-License-Identifier: Apache-2.0
#include "pm/control_session.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "pm/control_request.h"
#include "pm/log.h"

namespace cede::pm {
namespace {

namespace http = boost::beast::http;
namespace json = boost::json;
using boost::system::error_code;
using Local = boost::asio::local::stream_protocol;

constexpr std::uint32_t largest_head = 6 * 1024;
constexpr std::uint64_t largest_body = 2 * 1024;
constexpr std::size_t most_connections = 16;
constexpr std::size_t most_strangers = 4;  // of those: users whose requests are refused anyway
constexpr std::chrono::seconds patience{10};
constexpr std::chrono::seconds longest_parting{1};
constexpr std::size_t most_discarded = 64 * 1024;

struct Reply {
    http::status status = http::status::ok;
    std::string body;  // JSON
    std::string_view allow = {};
};

Reply reply_of(http::status status, std::string_view text, std::string_view allow = {}) {
    const json::object object{{"ok", status == http::status::ok}, {"message", text}};
    return {status, json::serialize(object) + "\n", allow};
}

// "Not done": what the text says speaks against it.
Reply reply_of(const Outcome& outcome) {
    return reply_of(outcome.good ? http::status::ok : http::status::conflict, outcome.text);
}

std::string bytes_of(const Reply& reply) {
    http::response<http::string_body> response{reply.status, 11};
    response.set(http::field::server, "cede");
    response.set(http::field::content_type, "application/json");
    response.set(http::field::cache_control, "no-store");
    if (!reply.allow.empty()) {
        response.set(http::field::allow, {reply.allow.data(), reply.allow.size()});
    }
    response.keep_alive(false);
    response.body() = reply.body;
    response.prepare_payload();
    std::ostringstream out;
    out << response;
    return std::move(out).str();
}

// How many bytes were taken. An error counts as everything: there is nobody to write to.
std::size_t send_now(int fd, std::string_view bytes) noexcept {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
        const ssize_t result =
            ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (result < 0 && errno == EINTR) {
            continue;
        }
        if (result < 0) {
            return errno == EAGAIN ? sent : bytes.size();
        }
        sent += static_cast<std::size_t>(result);
    }
    return sent;
}

// What was sent and not read would make the close an error at the other end (unix(7): ECONNRESET). False: its
// end was reached.
[[nodiscard]] bool discard_input(int fd) noexcept {
    char bytes[4096];
    for (std::size_t discarded = 0; discarded < most_discarded;) {
        const ssize_t result = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (result <= 0) {
            return result < 0 && errno == EAGAIN;
        }
        discarded += static_cast<std::size_t>(result);
    }
    return true;
}

void send_last(int fd, http::status status, std::string_view text) noexcept {
    try {
        (void)send_now(fd, bytes_of(reply_of(status, text)));
    } catch (const std::exception&) {
        return;  // out of memory: the client sees the connection end
    }
    ::shutdown(fd, SHUT_WR);
    (void)discard_input(fd);
}

// One client: its request, then the answer, then the end.
class Session final : public ControlSession, public std::enable_shared_from_this<Session> {
  public:
    Session(Local::socket socket, bool stranger, std::shared_ptr<const ControlServer::Actions> actions,
            std::function<void(const ControlSession*)> ended)
        : socket_{std::move(socket)},
          timer_{socket_.get_executor()},
          stranger_{stranger},
          actions_{std::move(actions)},
          ended_{std::move(ended)} {
        parser_.header_limit(largest_head);
        parser_.body_limit(largest_body);
    }

    [[nodiscard]] bool stranger() const noexcept override { return stranger_; }
    [[nodiscard]] bool asking() const noexcept override {
        return stage_ == Stage::asking || stage_ == Stage::parting;
    }

    void start() {
        limit_time();
        http::async_read(
            socket_, buffer_, parser_,
            [self = shared_from_this()](error_code error, std::size_t) { self->on_read(error); });
    }

    void respond(const Reply& reply) {
        if (stage_ != Stage::asking && stage_ != Stage::waiting) {
            return;
        }
        stage_ = Stage::answering;
        error_code ignored;
        socket_.cancel(ignored);
        // At once and not with the loop's next turn: the answer to `stop` has none.
        rest_ = bytes_of(reply);
        rest_.erase(0, send_now(socket_.native_handle(), rest_));
        if (rest_.empty()) {
            finish();
            return;
        }
        limit_time();
        boost::asio::async_write(socket_, boost::asio::buffer(rest_),
                                 [self = shared_from_this()](error_code, std::size_t) { self->finish(); });
    }

    void close() noexcept override {
        if (stage_ == Stage::closed) {
            return;
        }
        stage_ = Stage::closed;
        error_code ignored;
        timer_.cancel(ignored);
        socket_.close(ignored);
        ended_(this);  // the last: it may have been all that kept this object
    }

  private:
    enum class Stage : std::uint8_t { asking, waiting, answering, parting, closed };

    void limit_time(std::chrono::seconds longest = patience) {
        timer_.expires_after(longest);
        timer_.async_wait([self = shared_from_this()](error_code error) {
            if (error) {
                return;
            }
            if (self->stage_ == Stage::asking) {
                self->respond(reply_of(http::status::request_timeout, "no whole request came within 10 s"));
            } else {
                self->close();
            }
        });
    }

    void on_read(error_code error) {
        if (stage_ != Stage::asking) {
            return;
        }
        if (!error) {
            timer_.cancel();
            dispatch();
        } else if (error == http::error::header_limit || error == http::error::body_limit ||
                   error == http::error::buffer_overflow) {
            respond(reply_of(http::status::payload_too_large, "the request is larger than 8 KiB"));
        } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
                   error.category() == boost::system::system_category()) {
            close();  // left
        } else {
            respond(reply_of(http::status::bad_request, "this is no HTTP request: " + error.message()));
        }
    }

    void dispatch();
    void run(const ControlRequest& request);
    void hand_over();

    Answer wait_for_answer() {
        stage_ = Stage::waiting;
        socket_.async_wait(Local::socket::wait_read,
                           [self = shared_from_this()](error_code error) { self->on_peer(error); });
        return [self = shared_from_this()](const Outcome& outcome) { self->respond(reply_of(outcome)); };
    }

    // Somebody who has only ended what he sends still waits for the answer.
    void on_peer(error_code error) {
        pollfd peer{socket_.native_handle(), 0, 0};
        if (!error && stage_ == Stage::waiting && ::poll(&peer, 1, 0) > 0) {
            close();
        }
    }

    void finish() {
        ::shutdown(socket_.native_handle(), SHUT_WR);
        if (parser_.is_done()) {
            (void)discard_input(socket_.native_handle());
            close();
            return;
        }
        // He may still be sending, and would not read the answer if that failed.
        stage_ = Stage::parting;
        limit_time(longest_parting);
        part();
    }

    void part() {
        socket_.async_wait(Local::socket::wait_read, [self = shared_from_this()](error_code error) {
            if (error || self->stage_ != Stage::parting) {
                return;
            }
            if (discard_input(self->socket_.native_handle())) {
                self->part();
            } else {
                self->close();
            }
        });
    }

    Local::socket socket_;
    boost::asio::steady_timer timer_;
    boost::beast::flat_buffer buffer_{largest_head + largest_body};
    http::request_parser<http::string_body> parser_;
    std::string rest_;
    const bool stranger_;
    const std::shared_ptr<const ControlServer::Actions> actions_;
    const std::function<void(const ControlSession*)> ended_;
    Stage stage_ = Stage::asking;
};

void Session::dispatch() {
    const auto& http_request = parser_.get();
    if (stranger_) {
        return respond(reply_of(http::status::forbidden,
                                "only root and the user that cede runs as may use this socket"));
    }
    const auto target = http_request.target();
    const auto method = http_request.method_string();
    const auto request =
        from_http({method.data(), method.size()}, {target.data(), target.size()}, http_request.body());
    if (!request) {
        const auto status = static_cast<http::status>(request.error().status);
        return respond(reply_of(status, request.error().text, request.error().allow));
    }
    try {
        run(*request);
    } catch (const std::exception& error) {
        log(LogLevel::error, "control socket: {} failed: {}", name_of(request->verb), error.what());
        respond(reply_of(http::status::internal_server_error, error.what()));
    }
}

void Session::run(const ControlRequest& request) {
    switch (request.verb) {
        case Command::Verb::status:
            return respond({http::status::ok, actions_->status_json() + "\n"});
        case Command::Verb::reload:
            return actions_->reload(wait_for_answer());
        case Command::Verb::stop:
            return actions_->stop(request.fast, wait_for_answer());
        case Command::Verb::upgrade:
            return hand_over();
        case Command::Verb::reopen:
            return respond(reply_of(actions_->reopen()));
        case Command::Verb::children:
            return actions_->children(request.children, wait_for_answer());
    }
}

void Session::hand_over() {
    error_code error;
    const int client = socket_.release(error);
    if (error) {
        return respond(reply_of(http::status::internal_server_error, error.message()));
    }
    close();
    actions_->upgrade(client);
}

}  // namespace

std::shared_ptr<ControlSession> start_session(boost::asio::io_context& loop, children::UniqueFd client,
                                              bool stranger,
                                              std::shared_ptr<const ControlServer::Actions> actions,
                                              std::function<void(const ControlSession*)> ended) {
    Local::socket socket{loop};
    socket.assign(Local{}, client.get());
    (void)client.release();
    auto session =
        std::make_shared<Session>(std::move(socket), stranger, std::move(actions), std::move(ended));
    session->start();
    return session;
}

void turn_away(children::UniqueFd client, std::string_view why) noexcept {
    send_last(client.get(), http::status::service_unavailable, why);
}

void answer_raw(int client, const Outcome& outcome) noexcept {
    const children::UniqueFd owned{client};
    send_last(client, outcome.good ? http::status::ok : http::status::conflict, outcome.text);
}

}  // namespace cede::pm
