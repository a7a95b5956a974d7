// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "pm/control_server.h"
#include "pm/control_socket.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

namespace cede::tests {

inline UniqueFd connected_to_path(const std::string& path) {
    UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const bool connected =
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    return connected ? std::move(fd) : UniqueFd{};
}

inline std::string post(std::string_view target, std::string_view body = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", target, body.size(),
                       body);
}

// A control server whose actions are noted and answered by the test.
struct ControlStage {
    TempDirectory directory;
    boost::asio::io_context loop{1};
    std::vector<std::string> done;
    std::vector<pm::Answer> waiting;
    std::vector<UniqueFd> handed;
    std::string status = "{}";
    pm::Outcome reopened{true, "reopened"};
    std::unique_ptr<pm::ControlServer> server;

    ControlStage() {
        pm::Config config;
        config.control = path();
        auto socket = pm::open_control_socket(config, "", {});
        REQUIRE(socket.has_value());
        server = std::make_unique<pm::ControlServer>(
            loop, std::move(socket->fd),
            pm::ControlServer::Actions{
                [this] {
                    done.emplace_back("status");
                    return status;
                },
                [this](pm::Answer answer) { note("reload", std::move(answer)); },
                [this](bool fast, pm::Answer answer) {
                    note(fast ? "stop fast" : "stop", std::move(answer));
                },
                [this](int client) {
                    done.emplace_back("upgrade");
                    handed.emplace_back(client);
                },
                [this] { return reopened; },
                [this](unsigned count, pm::Answer answer) {
                    note(fmt::format("children {}", count), std::move(answer));
                },
            });
    }

    [[nodiscard]] std::string path() const { return directory.path("control.sock"); }

    void note(std::string what, pm::Answer answer) {
        done.push_back(std::move(what));
        waiting.push_back(std::move(answer));
    }

    [[nodiscard]] UniqueFd connect(std::string_view request = "") {
        UniqueFd client = connected_to_path(path());
        REQUIRE(client);
        if (!request.empty()) {
            REQUIRE(send_text(client.get(), request));
        }
        turn();
        return client;
    }

    void turn() {
        loop.restart();
        loop.run_for(std::chrono::milliseconds{2});
    }

    // Turns the loop until it is so.
    template <typename Condition>
    [[nodiscard]] bool becomes(Condition condition) {
        return soon([&] {
            turn();
            return condition();
        });
    }

    // All that comes until the connection ends. None: it does not end.
    [[nodiscard]] std::optional<std::string> rest(int client) {
        std::string text;
        const bool ended = becomes([&] {
            char bytes[65536];
            ssize_t got = 0;
            while ((got = ::recv(client, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
                text.append(bytes, static_cast<std::size_t>(got));
            }
            return got == 0;
        });
        return ended ? std::optional{text} : std::nullopt;
    }

    [[nodiscard]] std::string answer_to(std::string_view request) {
        return rest(connect(request).get()).value_or("no end");
    }

    // Nothing has come yet, and the connection is open.
    [[nodiscard]] bool silent(int client) {
        turn();
        char byte = 0;
        return ::recv(client, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
};

inline bool has_status(std::string_view answer, unsigned status) {
    return answer.starts_with(fmt::format("HTTP/1.1 {} ", status));
}

}  // namespace cede::tests
