// SPDX-License-Identifier: Apache-2.0
#include "pm/command_run.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "pm/address.h"
#include "pm/control_client.h"
#include "pm/control_path.h"
#include "pm/control_request.h"
#include "pm/control_socket.h"
#include "pm/log.h"
#include "pm/status.h"

namespace cede::pm {
namespace {

namespace json = boost::json;
using Verb = Command::Verb;

// What the server does at once, it answers at once; how long the rest may take is its business.
constexpr std::chrono::seconds patience{10};

int complain(const std::string& message) {
    log_last_words(for_terminal(message));
    return Error::failure;
}

// The name that the pool's socket has got; empty: any.
std::string wanted_name(const Command& command) {
    if (!command.title.empty()) {
        return control_name(command.title, {}, 0);
    }
    if (command.listen.empty()) {
        return {};
    }
    const auto address = parse_address(command.listen);
    if (!address) {
        return {};
    }
    const bool local = address->form == Address::Form::localhost;
    return control_name({}, local ? fmt::format("127.0.0.1:{}", address->port) : address->name(), 0);
}

std::string directories_in_words(const Environment& environment) {
    std::string words;
    for (const ControlDirectory& directory : control_directories(environment, ::geteuid())) {
        words += (words.empty() ? "" : ", ") + directory.path;
    }
    return words;
}

std::string which_pool(const Command& command) {
    return !command.title.empty()    ? fmt::format(" with the title '{}'", command.title)
           : !command.listen.empty() ? fmt::format(" for {}", command.listen)
                                     : "";
}

struct Found {
    std::vector<ControlClient> live;
    std::vector<std::string> forbidden;
    std::vector<std::string> problems;
};

Found find_pools(const Command& command, const Environment& environment) {
    const std::string name = wanted_name(command);
    Found found;
    for (const std::string& path : find_control_sockets(environment, ::geteuid())) {
        if (!name.empty() && !is_control_file(path, name)) {
            continue;
        }
        auto client = ControlClient::connect(path);
        if (client) {
            found.live.push_back(std::move(*client));
        } else if (client.error().why == ControlClient::Refusal::forbidden) {
            found.forbidden.push_back(path);
        } else if (client.error().why == ControlClient::Refusal::other) {
            found.problems.push_back(client.error().message);
        }
    }
    return found;
}

int complain_of_none(const Command& command, const Environment& environment, const Found& found) {
    if (!found.problems.empty()) {
        return complain(found.problems.front());
    }
    if (!found.forbidden.empty()) {
        return complain(fmt::format("{}: only root and the user that cede runs as may use it",
                                    fmt::join(found.forbidden, ", ")));
    }
    return complain(fmt::format(
        "no cede{} answers in {}; name its socket with --control PATH (its log says 'control socket PATH')",
        which_pool(command), directories_in_words(environment)));
}

int complain_of_many(const Command& command, const Found& found) {
    std::string list;
    for (const ControlClient& client : found.live) {
        list += fmt::format("\n  cede {} --control {}", name_of(command.verb), client.path());
    }
    return complain(
        fmt::format("there are {} pools{}; say which:{}", found.live.size(), which_pool(command), list));
}

void print(FILE* stream, std::string text) {
    if (!text.ends_with('\n')) {
        text += '\n';
    }
    std::fputs(text.c_str(), stream);
}

// What every other answer than a status is: {"ok": ..., "message": ...}.
int report(const ControlClient& client, const ControlClient::Reply& reply) {
    boost::system::error_code error;
    const json::value answer = json::parse(reply.body, error);
    const json::value* const text =
        error || !answer.is_object() ? nullptr : answer.get_object().if_contains("message");
    if (text == nullptr || !text->is_string()) {
        return complain(fmt::format("{}: the answer is none of cede's", client.path()));
    }
    const std::string_view message{text->get_string().data(), text->get_string().size()};
    constexpr unsigned done = 200;
    if (reply.status != done) {
        return complain(std::string{message});
    }
    print(stdout, for_terminal(message));
    return 0;
}

int show_status(const Command& command, const ControlClient& client, const ControlClient::Reply& reply) {
    constexpr unsigned done = 200;
    if (reply.status != done) {
        return report(client, reply);
    }
    const auto text = status_text(reply.body);
    if (!text) {
        return complain(fmt::format("{}: {}", client.path(), text.error()));
    }
    // Written anew, not handed through: nothing but JSON comes out, on one line.
    print(stdout, command.json ? json::serialize(json::parse(reply.body)) : *text);
    return 0;
}

int stopped(const Command& command, const ControlClient& client, const ControlClient::Reply& reply) {
    if (const int status = reply.ended ? 0 : report(client, reply); status != 0) {
        return status;
    }
    // After its last word it ends at once; without one, it is to be seen that it does.
    const auto longest = command.timeout || !reply.ended ? command.timeout : std::optional{patience};
    if (!client.wait_for_end(longest)) {
        return complain(fmt::format("{}: cede has not ended yet; see its log", client.path()));
    }
    if (reply.ended) {
        print(stdout, "stopped");
    }
    return 0;
}

int command_one(const Command& command, ControlClient& client) {
    const bool at_once = command.verb == Verb::status || command.verb == Verb::reopen;
    const auto timeout = command.timeout || !at_once ? command.timeout : std::optional{patience};
    const auto reply = client.ask(to_http({command.verb, command.fast, command.children}), timeout);
    if (!reply) {
        return complain(reply.error().message);
    }
    if (command.verb == Verb::stop) {
        return stopped(command, client, *reply);
    }
    if (reply->ended) {
        return complain(
            fmt::format("{}: cede ended, or closed the connection, before it answered; its log "
                        "may say why",
                        client.path()));
    }
    return command.verb == Verb::status ? show_status(command, client, *reply) : report(client, *reply);
}

int status_of_all(const Command& command, std::vector<ControlClient>& clients) {
    int worst = 0;
    bool first = true;
    for (ControlClient& client : clients) {
        if (!command.json) {
            print(stdout, fmt::format("{}{}:", std::exchange(first, false) ? "" : "\n", client.path()));
        }
        worst = std::max(worst, command_one(command, client));
    }
    return worst;
}

}  // namespace

int run_command(const Command& command, const Environment& environment) {
    if (!command.control.empty()) {
        auto client = ControlClient::connect(command.control);
        return client ? command_one(command, *client) : complain(client.error().message);
    }
    Found found = find_pools(command, environment);
    if (found.live.empty()) {
        return complain_of_none(command, environment, found);
    }
    if (found.live.size() == 1) {
        return command_one(command, found.live.front());
    }
    return command.verb == Verb::status ? status_of_all(command, found.live)
                                        : complain_of_many(command, found);
}

}  // namespace cede::pm
