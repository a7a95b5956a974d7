// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "pm/child_exec.h"
#include "pm/config.h"

namespace cede::pm {
namespace {

std::unexpected<Error> refuse(const Config& config, std::string_view option, std::string_view what) {
    return std::unexpected(Error{fmt::format("{}: {}", where(config, option), what), Error::usage});
}

// What says nothing in this mode was meant for another one.
std::expected<void, Error> check_mode(const Config& config) {
    constexpr std::array<std::string_view, 3> for_dynamic{"start-servers", "min-spare", "max-spare"};
    constexpr std::array<std::string_view, 2> for_both{"idle-timeout", "max-spawn-rate"};
    if (config.pool_mode != PoolMode::dynamic) {
        for (const std::string_view option : for_dynamic) {
            if (config.origins.contains(option)) {
                return refuse(config, option,
                              "says something with --pm dynamic only; remove it, or set that");
            }
        }
    }
    if (config.pool_mode == PoolMode::fixed) {
        for (const std::string_view option : for_both) {
            if (config.origins.contains(option)) {
                return refuse(config, option,
                              "says nothing with --pm static; remove it, or set dynamic or ondemand");
            }
        }
    }
    return {};
}

}  // namespace

std::expected<Sizes, Error> sizes_of(const Config& config) {
    if (auto checked = check_mode(config); !checked) {
        return std::unexpected(checked.error());
    }
    Sizes sizes{config.pool_mode,      config.children,    config.children, 0, 0,
                config.max_spawn_rate, config.idle_timeout};
    if (config.spawn == SpawnMode::exec) {
        sizes.most_starting = most_executed_at_once();
    }
    sizes.reserved = config.probe_reserve;
    if (config.probe_reserve >= config.children) {
        return refuse(config, "probe-reserve",
                      fmt::format("give less than {}, the number of children, or more --children: others "
                                  "have to serve the rest",
                                  config.children));
    }
    if (config.pool_mode == PoolMode::ondemand) {
        sizes.at_start = config.probe_reserve;
    }
    if (config.pool_mode != PoolMode::dynamic) {
        return sizes;
    }
    constexpr unsigned quarter = 4;
    sizes.least_spare = config.min_spare.value_or(1);
    sizes.most_spare = config.max_spare.value_or(
        std::min(config.children, std::max(sizes.least_spare + 1, config.children / quarter)));
    // php-fpm's rules.
    if (sizes.least_spare == 0 || sizes.least_spare > config.children) {
        return refuse(config, "min-spare",
                      fmt::format("give 1 to {}, the number of children", config.children));
    }
    if (sizes.most_spare < sizes.least_spare || sizes.most_spare > config.children) {
        return refuse(config, "max-spare",
                      fmt::format("give {} (--min-spare) to {}, the number of children", sizes.least_spare,
                                  config.children));
    }
    sizes.at_start =
        config.start_servers.value_or(sizes.least_spare + (sizes.most_spare - sizes.least_spare) / 2);
    if (sizes.at_start < sizes.least_spare || sizes.at_start > sizes.most_spare) {
        return refuse(
            config, "start-servers",
            fmt::format("give {} (--min-spare) to {} (--max-spare)", sizes.least_spare, sizes.most_spare));
    }
    sizes.at_start = std::min(sizes.at_start + sizes.reserved, sizes.most);
    return sizes;
}

std::expected<void, Error> check_waiting(const Config& config) {
    if (config.overload != Overload::fifo && config.max_wait.count() == 0) {
        return refuse(config, "overload",
                      fmt::format("{} says something with --max-wait only; set that, or remove this",
                                  config.overload == Overload::lifo ? "lifo" : "reject"));
    }
    return {};
}

}  // namespace cede::pm
