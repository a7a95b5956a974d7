// SPDX-License-Identifier: Apache-2.0
#include "pm/control_request.h"

#include <algorithm>
#include <optional>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "pm/limits.h"

namespace cede::pm {
namespace {

namespace json = boost::json;
using Verb = Command::Verb;

constexpr std::size_t longest_quote = 40;

// The name of its only argument; empty: it has none.
std::string_view argument_of(Verb verb) noexcept {
    return verb == Verb::stop ? "fast" : verb == Verb::children ? "children" : "";
}

std::string_view method_for(Verb verb) noexcept {
    return verb == Verb::status ? "GET" : "POST";
}

std::unexpected<HttpRefusal> refuse(unsigned status, std::string text, std::string_view allow = {}) {
    return std::unexpected{HttpRefusal{status, std::move(text), allow}};
}

std::unexpected<HttpRefusal> refuse_argument(std::string text) {
    constexpr unsigned unprocessable = 422;
    return refuse(unprocessable, std::move(text) + "; see docs/control.md");
}

// The body is an object with at the most this one key, or nothing.
std::expected<std::optional<json::value>, HttpRefusal> argument_in(std::string_view body,
                                                                   std::string_view key) {
    std::optional<json::value> argument;
    if (body.empty()) {
        return argument;
    }
    boost::system::error_code error;
    const json::value parsed = json::parse({body.data(), body.size()}, error);
    if (error || !parsed.is_object()) {
        return refuse_argument("the body is no JSON object");
    }
    for (const auto& [name, value] : parsed.get_object()) {
        const std::string_view found{name.data(), name.size()};
        if (key.empty() || found != key) {
            return refuse_argument(fmt::format("unknown key \"{}\"", found.substr(0, longest_quote)));
        }
        argument = value;
    }
    return argument;
}

}  // namespace

HttpRequest to_http(const ControlRequest& request) {
    HttpRequest http{std::string{method_for(request.verb)}, fmt::format("/{}", name_of(request.verb)), {}};
    if (request.verb == Verb::stop) {
        http.body = json::serialize(json::object{{"fast", request.fast}});
    } else if (request.verb == Verb::children) {
        http.body = json::serialize(json::object{{"children", request.children}});
    }
    return http;
}

std::expected<ControlRequest, HttpRefusal> from_http(std::string_view method, std::string_view target,
                                                     std::string_view body) {
    constexpr unsigned not_found = 404;
    constexpr unsigned wrong_method = 405;
    const auto verb = target.starts_with('/') ? verb_of(target.substr(1)) : std::nullopt;
    if (!verb) {
        return refuse(not_found, "there is no such command; see docs/control.md");
    }
    if (method != method_for(*verb)) {
        return refuse(wrong_method, fmt::format("use {} for {}", method_for(*verb), target),
                      method_for(*verb));
    }
    const auto argument = argument_in(body, argument_of(*verb));
    if (!argument) {
        return std::unexpected{argument.error()};
    }
    ControlRequest request{*verb, false, 0};
    if (*verb == Verb::stop && *argument) {
        if (!(*argument)->is_bool()) {
            return refuse_argument("\"fast\" is true or false");
        }
        request.fast = (*argument)->get_bool();
    } else if (*verb == Verb::children) {
        boost::system::error_code error;
        request.children = *argument ? (*argument)->to_number<unsigned>(error) : 0U;
        if (error || request.children < 1 || request.children > limits::most_children) {
            return refuse_argument(
                fmt::format("say how many: {{\"children\": N}}, from 1 to {}", limits::most_children));
        }
    }
    return request;
}

}  // namespace cede::pm
