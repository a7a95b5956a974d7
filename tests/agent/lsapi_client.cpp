// SPDX-License-Identifier: Apache-2.0
#include "tests/agent/lsapi_client.h"

#include <cerrno>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/socket.h>
#include <utility>

#include "protocol/lsapi_response_reader.h"
#include "tests/support/packets.h"

namespace cede::tests::lsapi {

namespace codec = protocol::lsapi;

namespace {

constexpr int patience_ms = 10000;

std::string text_of(protocol::Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Notes what an event says. True when the answer is complete or can not go on.
bool take(codec::ResponseEvent event, const codec::ResponseReader& reader, Answer& answer) {
    switch (event) {
        case codec::ResponseEvent::need_more:
        case codec::ResponseEvent::received:
            break;
        case codec::ResponseEvent::head:
            answer.status = reader.status();
            break;
        case codec::ResponseEvent::body_bytes:
            answer.text += text_of(reader.content());
            break;
        case codec::ResponseEvent::stderr_bytes:
            answer.log += text_of(reader.content());
            break;
        case codec::ResponseEvent::conn_close:
            answer.told_to_close = true;
            break;
        case codec::ResponseEvent::end:
            answer.complete = true;
            return true;
        case codec::ResponseEvent::refused:
            throw std::runtime_error{"an answer that is none: " + std::string{describe(reader.outcome())}};
    }
    return false;
}

}  // namespace

std::string bytes_of(const Command& command) {
    const std::string length = std::to_string(
        command.body_length >= 0 ? static_cast<std::size_t>(command.body_length) : command.body.size());
    const codec::NameValue env[] = {
        {"COMMAND", command.name},         {"ARGUMENT", command.argument}, {"FILLING", command.filling},
        {"SCRIPT_FILENAME", "/w/command"}, {"SCRIPT_NAME", "/command"},    {"QUERY_STRING", ""},
        {"REQUEST_METHOD", "POST"},
    };
    const codec::NameValue headers[] = {{"Host", "localhost"}, {"Content-Length", length}};
    codec::Request request;
    request.env = env;
    request.request_line = "POST /command HTTP/1.1";
    request.headers = headers;
    request.body_length = command.length_in_header ? codec::body_length_in_header : std::stoi(length);
    std::string bytes(codec::request_size(request, command.layout), '\0');
    const auto written = codec::write_begin_request(
        std::as_writable_bytes(std::span{bytes.data(), bytes.size()}), request, command.layout);
    if (!written) {
        throw std::runtime_error{"no request: " + std::string{describe(written.error())}};
    }
    return bytes.substr(0, *written) + std::string{command.body};
}

std::string command(std::string_view name, std::string_view argument, std::string_view body) {
    return bytes_of({.name = name, .argument = argument, .body = body});
}

std::vector<std::size_t> reads(const std::string& trace) {
    std::vector<std::size_t> sizes;
    std::istringstream lines{trace};
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("read ") && line.find("errno") == std::string::npos) {
            sizes.push_back(std::stoul(line.substr(5)));
        }
    }
    return sizes;
}

bool Client::send(std::string_view bytes) {
    while (!bytes.empty()) {
        pollfd watched{fd(), POLLOUT, 0};
        if (::poll(&watched, 1, patience_ms) <= 0) {
            return false;
        }
        const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) {
            return false;
        }
        bytes.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
    }
    return true;
}

std::ptrdiff_t Client::receive(int timeout_ms) {
    pollfd watched{fd(), POLLIN, 0};
    if (::poll(&watched, 1, timeout_ms) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    char part[65536];
    const ssize_t got = ::recv(fd(), part, sizeof part, MSG_DONTWAIT);
    unread_.append(part, got > 0 ? static_cast<std::size_t>(got) : 0);
    return got;
}

Answer Client::read_answer() {
    std::vector<std::byte> storage(codec::max_response_header);
    codec::ResponseReader reader{storage};
    Answer answer;
    for (;;) {
        protocol::Bytes input = std::as_bytes(std::span{unread_.data(), unread_.size()});
        codec::ResponseEvent event = codec::ResponseEvent::need_more;
        bool over = false;
        do {
            event = reader.next(input);
            over = take(event, reader, answer);
        } while (!over && event != codec::ResponseEvent::need_more);
        unread_.erase(0, unread_.size() - input.size());
        answer.acknowledged = reader.acknowledged();
        if (!over && receive(patience_ms) <= 0) {
            answer.closed = over = true;
        }
        if (over) {
            return answer;
        }
    }
}

std::string Client::ask(std::string_view request) {
    if (!send(request)) {
        return "(not sent)";
    }
    const Answer answer = read_answer();
    if (!answer.complete) {
        return answer.told_to_close ? "(told to close)" : "(closed)";
    }
    return answer.acknowledged && answer.status == 200 ? answer.text : "(" + answer.text + ")";
}

bool Client::told_to_close() {
    const std::string packet = tests::packet(static_cast<unsigned>(codec::PacketType::conn_close));
    while (unread_.size() < packet.size()) {
        if (receive(patience_ms) <= 0) {
            return false;
        }
    }
    if (!unread_.starts_with(packet)) {
        return false;
    }
    unread_.erase(0, packet.size());
    return true;
}

bool Client::ends() {
    return unread_.empty() && receive(patience_ms) == 0;
}

void Client::shut_down() {
    ::shutdown(fd(), SHUT_RDWR);
}

bool Client::holds(std::string_view text) {
    (void)receive(0);
    return unread_.find(text) != std::string::npos;
}

bool Client::silent() {
    return unread_.empty() && receive(0) < 0 && errno == EAGAIN;
}

}  // namespace cede::tests::lsapi
