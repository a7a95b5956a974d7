// SPDX-License-Identifier: Apache-2.0
#include "pm/surroundings.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "pm/words.h"

namespace cede::pm {
namespace {

using children::SpawnError;
using Step = SpawnError::Step;

// No limit of open files can be above it (proc(5), /proc/sys/fs/nr_open).
unsigned most_descriptors() {
    unsigned most = 0;
    std::ifstream{"/proc/sys/fs/nr_open"} >> most;
    constexpr unsigned usual = 1024 * 1024;
    return most > 0 ? most : usual;
}

std::string_view option_of(Step step) noexcept {
    switch (step) {
        case Step::open_files:
            return "rlimit-nofile";
        case Step::core:
            return "rlimit-core";
        case Step::nice:
            return "nice";
        case Step::root:
            return "chroot";
        case Step::directory:
            return "chdir";
        case Step::groups:
        case Step::user:
            return "user";
        case Step::group:
            return "group";
        case Step::execute:
            return "command";
        case Step::fork:
        case Step::descriptors:
            break;
    }
    return {};
}

std::string capability(std::string_view name) {
    return fmt::format("give cede the capability {} (systemd: CapabilityBoundingSet=, containers: --cap-add)",
                       name);
}

std::string remedy_for_place(Step step, int error) {
    if (step == Step::root && error == EPERM) {
        return capability("CAP_SYS_CHROOT") + ", or leave --chroot out";
    }
    if (step == Step::directory) {
        return "create the directory, or correct --chdir, which is looked up inside --chroot";
    }
    return "create the directory, or correct --chroot";
}

std::string remedy(Step step, int error) {
    switch (step) {
        case Step::fork:
            return "see ulimit -u, the cgroup's pids.max and free memory";
        case Step::descriptors:
            return "raise the limit of open files (LimitNOFILE=, ulimit -n)";
        case Step::open_files:
            return "give --rlimit-nofile no more than the hard limit (ulimit -Hn), or raise that "
                   "(LimitNOFILE=)";
        case Step::core:
            return "give --rlimit-core no more than the hard limit (ulimit -Hc), or raise that (LimitCORE=)";
        case Step::nice:
            return "give --nice no less than cede's own priority, or " + capability("CAP_SYS_NICE");
        case Step::root:
        case Step::directory:
            return remedy_for_place(step, error);
        case Step::groups:
        case Step::group:
            return capability("CAP_SETGID") + ", or start it as the user that children are to be";
        case Step::user:
            return error == EAGAIN
                       ? "raise the limit of that user's processes (LimitNPROC=)"
                       : capability("CAP_SETUID") + ", or start it as the user that children are to be";
        case Step::execute:
            return "check the path of the command, its permissions for the children's user, and its loader";
    }
    return "run cede check";
}

}  // namespace

Value<std::string> parse_directory(std::string_view text) {
    if (!text.starts_with('/')) {
        return std::unexpected(
            fmt::format("{} does not start with a '/'; give the whole path", quoted(text)));
    }
    const std::string closed = fmt::format("{}/", text);
    if (closed.find("/../") != std::string::npos) {
        return std::unexpected(fmt::format("{} has a '..' in it; write the path without", quoted(text)));
    }
    return std::string{text};
}

Value<unsigned> parse_umask(std::string_view text) {
    const auto bits = whole_number<unsigned>(text, 8);
    if (!bits || *bits > 0777 || text.size() > 4) {
        return std::unexpected(
            fmt::format("{} is no umask; give up to four octal digits, like 0022", quoted(text)));
    }
    return *bits;
}

Value<int> parse_nice(std::string_view text) {
    constexpr int least = -20;
    constexpr int most = 19;
    const auto value = whole_number<int>(text);
    if (!value || *value < least || *value > most) {
        return std::unexpected(fmt::format(
            "{} is no priority; give a number from {} (before all others) to {}", quoted(text), least, most));
    }
    return *value;
}

Value<unsigned> parse_descriptor_limit(std::string_view text) {
    constexpr unsigned least = 256;
    return parse_number(text, least, std::max(most_descriptors(), least));
}

Value<std::uint64_t> parse_core_limit(std::string_view text) {
    static_assert(RLIM_INFINITY == std::numeric_limits<std::uint64_t>::max());
    if (text == "unlimited") {
        return RLIM_INFINITY;
    }
    const auto bytes = whole_number<std::uint64_t>(text);
    if (!bytes || *bytes == RLIM_INFINITY) {
        return std::unexpected(fmt::format(
            "{} is no size of a core file; give it in bytes, 0 for none, or unlimited", quoted(text)));
    }
    return *bytes;
}

Value<std::string> parse_title(std::string_view text) {
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
    if (std::ranges::any_of(text, is_control)) {
        return std::unexpected(fmt::format("{} has a control character in it; remove it", quoted(text)));
    }
    return std::string{text};
}

children::Surroundings surroundings_of(const Config& config) {
    children::Surroundings result;
    if (config.rlimit_nofile) {
        result.open_files = rlimit{*config.rlimit_nofile, *config.rlimit_nofile};
    }
    if (config.rlimit_core) {
        result.core = rlimit{*config.rlimit_core, *config.rlimit_core};
    }
    if (config.umask) {
        result.umask = *config.umask;
    }
    result.nice = config.nice;
    result.root = config.chroot;
    result.directory = config.chdir;
    return result;
}

std::string explain(const SpawnError& error) {
    return fmt::format("can't {}: {}; {}", children::describe(error.step),
                       std::generic_category().message(error.error), remedy(error.step, error.error));
}

std::string explain(const SpawnError& error, const Config& config) {
    const std::string_view option = option_of(error.step);
    return option.empty() ? explain(error) : fmt::format("{}: {}", where(config, option), explain(error));
}

}  // namespace cede::pm
