// SPDX-License-Identifier: Apache-2.0
#include "pm/command.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>

#include "pm/address.h"
#include "pm/config_value.h"
#include "pm/limits.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

namespace po = boost::program_options;
using Done = std::expected<void, Error>;
using Verb = Command::Verb;

constexpr std::string_view words[] = {"status", "reload", "stop", "upgrade", "reopen", "children"};

std::unexpected<Error> usage(std::string message) {
    return std::unexpected{Error{std::move(message) + " (see cede --help)", Error::usage}};
}

template <typename T, typename Parsed>
Done store(T& target, const std::string& place, Parsed parsed) {
    if (!parsed) {
        return usage(fmt::format("{}: {}", place, parsed.error()));
    }
    target = std::move(*parsed);
    return {};
}

Done take_text(std::string& target, const std::string& name, const std::string& value) {
    if (value.empty()) {
        return usage(fmt::format("--{}: the value is empty; give one, or leave the option out", name));
    }
    target = value;
    return {};
}

Done take_listen(Command& command, const std::string& value) {
    if (const auto address = parse_address(value); !address) {
        return usage("--listen: " + address.error().message);
    }
    command.listen = value;
    return {};
}

Done take(Command& command, const std::string& name, const std::string& value) {
    if (name == "json") {
        command.json = true;
    } else if (name == "fast") {
        command.fast = true;
    } else if (name == "help") {
        command.help = true;
    } else if (name == "timeout") {
        return store(command.timeout, "--timeout", parse_time(value, std::chrono::milliseconds{1}));
    } else if (name == "listen") {
        return take_listen(command, value);
    } else {
        return take_text(name == "title" ? command.title : command.control, name, value);
    }
    return {};
}

po::options_description known_options(Verb verb) {
    po::options_description known;
    auto add = known.add_options();
    add("help", "")("control", po::value<std::string>(), "")("title", po::value<std::string>(), "");
    add("listen", po::value<std::string>(), "")("timeout", po::value<std::string>(), "");
    if (verb == Verb::status) {
        add("json", "");
    } else if (verb == Verb::stop) {
        add("fast", "");
    }
    return known;
}

std::expected<std::vector<po::basic_option<char>>, Error> split(Verb verb,
                                                                const std::vector<std::string>& arguments) {
    namespace style = po::command_line_style;
    constexpr int long_names_in_full =
        style::allow_long | style::long_allow_adjacent | style::long_allow_next;
    const po::options_description known = known_options(verb);
    try {
        return po::command_line_parser{arguments}.options(known).style(long_names_in_full).run().options;
    } catch (const po::error& error) {
        return usage(fmt::format("cede {}: {}", name_of(verb), error.what()));
    }
}

Done take_number(Command& command, const std::string& word) {
    if (command.verb != Verb::children || command.children != 0) {
        return usage(fmt::format("cede {}: unexpected argument {}", name_of(command.verb), quoted(word)));
    }
    return store(command.children, "cede children", parse_number(word, 1, limits::most_children));
}

Done check_whole(const Command& command) {
    if (command.verb == Verb::children && command.children == 0) {
        return usage("cede children: say how many: cede children 10");
    }
    if (!command.control.empty() + !command.title.empty() + !command.listen.empty() > 1) {
        return usage("--control, --title and --listen each say which pool; keep one");
    }
    return {};
}

}  // namespace

std::string_view name_of(Command::Verb verb) noexcept {
    return words[static_cast<std::size_t>(verb)];
}

std::span<const std::string_view> command_words() noexcept {
    return words;
}

std::optional<Verb> verb_of(std::string_view word) noexcept {
    const auto found = std::ranges::find(words, word);
    return found == std::end(words) ? std::nullopt
                                    : std::optional{static_cast<Verb>(found - std::begin(words))};
}

std::expected<Command, Error> parse_command(std::span<const char* const> arguments) {
    Command command;
    command.verb = verb_of(arguments.front()).value_or(Verb::status);
    const auto options = split(command.verb, {arguments.begin() + 1, arguments.end()});
    if (!options) {
        return std::unexpected{options.error()};
    }
    std::set<std::string> seen;
    for (const auto& option : *options) {
        const std::string value = option.value.empty() ? "" : option.value.front();
        const bool positional = option.position_key >= 0;
        if (!positional && !seen.insert(option.string_key).second) {
            return usage(fmt::format("--{} is given twice; keep one", option.string_key));
        }
        const auto taken = positional ? take_number(command, value) : take(command, option.string_key, value);
        if (!taken) {
            return std::unexpected{taken.error()};
        }
    }
    if (command.help) {
        return command;
    }
    if (auto whole = check_whole(command); !whole) {
        return std::unexpected{whole.error()};
    }
    return command;
}

}  // namespace cede::pm
