// SPDX-License-Identifier: Apache-2.0
#include "pm/environment_defaults.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "pm/config_value.h"
#include "pm/limits.h"

namespace cede::pm {
namespace {

using Done = std::expected<void, Error>;
using Names = std::span<const std::string_view>;
using Entry = Environment::value_type;

// Earlier names win, as in lsphp.
constexpr std::array<std::string_view, 3> children_names{"PHP_LSAPI_CHILDREN", "LSAPI_CHILDREN",
                                                         "PHP_FCGI_CHILDREN"};
constexpr std::array<std::string_view, 3> max_requests_names{"PHP_LSAPI_MAX_REQUESTS", "LSAPI_MAX_REQS",
                                                             "PHP_FCGI_MAX_REQUESTS"};
constexpr std::array<std::string_view, 1> request_timeout_names{"LSAPI_MAX_PROCESS_TIME"};

const Entry* first_of(const Environment& environment, Names names) {
    for (const std::string_view name : names) {
        if (const auto found = environment.find(name); found != environment.end()) {
            return &*found;
        }
    }
    return nullptr;
}

// Nothing to do unless one of `names` is set and `option` is not. `take` gets the number.
template <typename Take>
Done apply(Config& config, const Environment& environment, std::string_view option, Names names,
           bool below_zero_is_zero, unsigned most, Take take) {
    const Entry* entry = first_of(environment, names);
    if (entry == nullptr || config.origins.contains(option)) {
        return {};
    }
    const std::string place = entry->first + " in the environment";
    std::string_view text = entry->second;
    const bool below_zero = below_zero_is_zero && text.starts_with('-');
    text.remove_prefix(below_zero ? 1 : 0);
    const auto number = parse_number(text, 0, most);
    if (!number) {
        return std::unexpected(
            Error{fmt::format("{}: {}, or give --{}", place, number.error(), option), Error::usage});
    }
    take(below_zero ? 0 : *number);
    config.origins[std::string{option}] = place;
    return {};
}

}  // namespace

Done apply_environment(Config& config, const Environment& environment) {
    // 0 is how both programs say "no children, serve by yourself", which is one request at a time.
    auto done = apply(config, environment, "children", children_names, false, limits::most_children,
                      [&config](unsigned number) { config.children = std::max(number, 1U); });
    if (done) {
        done = apply(config, environment, "max-requests", max_requests_names, true,
                     std::numeric_limits<unsigned>::max(),
                     [&config](unsigned number) { config.max_requests = number; });
    }
    if (done) {
        done = apply(config, environment, "request-timeout", request_timeout_names, true,
                     std::numeric_limits<int>::max(),
                     [&config](unsigned number) { config.request_timeout = std::chrono::seconds{number}; });
    }
    return done;
}

bool ends_with_parent(const Environment& environment) {
    const Names forks{children_names.data(), 2};
    if (first_of(environment, forks) == nullptr || environment.contains("LSAPI_PPID_NO_CHECK")) {
        return false;
    }
    // lsphp reads it with atoi(3), and any number from 0 up implies the other variable.
    const auto busy = environment.find("LSAPI_MAX_BUSY_WORKER");
    return busy == environment.end() || std::atoi(busy->second.c_str()) < 0;
}

}  // namespace cede::pm
