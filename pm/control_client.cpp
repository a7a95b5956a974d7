// SPDX-License-Identifier: Apache-2.0
#include "pm/control_client.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <fmt/format.h>

#include "children/unique_fd.h"

namespace cede::pm {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using Local = boost::asio::local::stream_protocol;
using Unreachable = ControlClient::Unreachable;
using Refusal = ControlClient::Refusal;

constexpr std::uint64_t largest_answer = 64 * 1024 * 1024;
constexpr timeval longest_connect{5, 0};

Unreachable describe(const std::string& path, int error) {
    switch (error) {
        case ENOENT:
            return {Refusal::nobody,
                    fmt::format("{}: there is no such socket; the log of cede says which one it has, as "
                                "'control socket PATH'",
                                path)};
        case ECONNREFUSED:
            return {Refusal::nobody, fmt::format("{}: nobody answers; that cede has ended", path)};
        case EACCES:
        case EPERM:
            return {Refusal::forbidden,
                    fmt::format("{}: only root and the user that cede runs as may use it", path)};
        case EAGAIN:
            return {Refusal::other, fmt::format("{}: cede does not answer; is it stopped (SIGSTOP)?", path)};
        default:
            return {Refusal::other, fmt::format("{}: {}", path, std::strerror(error))};
    }
}

// The process that listens (unix(7), SO_PEERCRED), for as long as it keeps its pid, re-executed or not.
children::UniqueFd process_behind(int socket) noexcept {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return {};
    }
    return children::UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0))};
}

}  // namespace

struct ControlClient::Wire {
    std::string path;
    children::UniqueFd process;  // none where pidfds or the pid can't be had
    boost::asio::io_context loop{1};
    Local::socket socket{loop};
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request;
    http::response_parser<http::string_body> parser;
    error_code error = boost::asio::error::would_block;  // of the exchange; this one: it is not over

    void exchange() {
        http::async_write(socket, request, [this](error_code, std::size_t) {
            // Whoever does not want the whole request may have answered all the same.
            http::async_read(socket, buffer, parser, [this](error_code read, std::size_t) { error = read; });
        });
    }
};

ControlClient::ControlClient(std::unique_ptr<Wire> wire) noexcept : wire_{std::move(wire)} {}
ControlClient::ControlClient(ControlClient&&) noexcept = default;
ControlClient& ControlClient::operator=(ControlClient&&) noexcept = default;
ControlClient::~ControlClient() = default;

const std::string& ControlClient::path() const noexcept {
    return wire_->path;
}

std::expected<ControlClient, Unreachable> ControlClient::connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return std::unexpected{describe(path, ENAMETOOLONG)};
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    children::UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    // For as long a connect waits for room in the queue (unix(7)).
    if (!fd ||
        ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &longest_connect, sizeof longest_connect) != 0 ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return std::unexpected{describe(path, errno)};
    }
    auto wire = std::make_unique<Wire>();
    wire->path = path;
    wire->process = process_behind(fd.get());
    wire->socket.assign(Local{}, fd.get());
    (void)fd.release();
    wire->parser.body_limit(largest_answer);
    return ControlClient{std::move(wire)};
}

std::expected<ControlClient::Reply, Error> ControlClient::ask(
    const HttpRequest& request, std::optional<std::chrono::milliseconds> timeout) {
    Wire& wire = *wire_;
    wire.request.method_string({request.method.data(), request.method.size()});
    wire.request.target({request.target.data(), request.target.size()});
    wire.request.set(http::field::host, "cede");
    wire.request.keep_alive(false);
    if (!request.body.empty()) {
        wire.request.set(http::field::content_type, "application/json");
        wire.request.body() = request.body;
    }
    wire.request.prepare_payload();
    wire.exchange();
    if (timeout) {
        wire.loop.run_for(*timeout);
    } else {
        wire.loop.run();
    }
    if (wire.error == boost::asio::error::would_block) {
        return std::unexpected{
            Error{fmt::format("{}: no answer within {} ms (--timeout)", wire.path, timeout->count())}};
    }
    if (wire.error && wire.error.category() != boost::system::system_category() &&
        wire.error != http::error::end_of_stream && wire.error != http::error::partial_message) {
        return std::unexpected{
            Error{fmt::format("{}: the answer is none of cede's: {}", wire.path, wire.error.message())}};
    }
    if (wire.error) {
        return Reply{true, 0, {}};
    }
    return Reply{false, wire.parser.get().result_int(), std::move(wire.parser.get().body())};
}

bool ControlClient::wait_for_end(std::optional<std::chrono::milliseconds> timeout) const noexcept {
    if (!wire_->process) {
        return true;
    }
    pollfd ended{wire_->process.get(), POLLIN, 0};
    const auto longest = timeout ? std::min<std::int64_t>(timeout->count(), INT_MAX) : -1;
    return ::poll(&ended, 1, static_cast<int>(longest)) > 0;
}

}  // namespace cede::pm
