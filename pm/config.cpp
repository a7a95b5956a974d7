// SPDX-License-Identifier: Apache-2.0
#include "pm/config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <fmt/format.h>

#include "pm/command.h"
#include "pm/config_file.h"
#include "pm/environment_defaults.h"
#include "pm/option_table.h"
#include "pm/words.h"

#ifndef CEDE_VERSION
#error "CEDE_VERSION must be defined as a string; the build files do so"
#endif

namespace cede::pm {
namespace {

namespace po = boost::program_options;
using Done = std::expected<void, Error>;
using Arguments = std::vector<std::string>;

constexpr std::string_view see_help = "see cede --help";

std::unexpected<Error> usage(std::string message) {
    return std::unexpected(Error{std::move(message), Error::usage});
}

// What is wrong with a name that is no option, and which one may have been meant.
std::string unknown_option(std::string_view shown, std::string_view name, std::string_view prefix) {
    std::vector<std::string_view> names{"config", "command", "help", "version"};
    std::ranges::transform(options(), std::back_inserter(names), &Option::name);
    std::ranges::transform(aliases(), std::back_inserter(names), &Alias::name);
    const std::string_view guess = nearest(name, names);
    if (guess.empty()) {
        return fmt::format("unknown option {} ({})", quoted(shown), see_help);
    }
    return fmt::format("unknown option {}; did you mean '{}{}'? ({})", quoted(shown), prefix, guess,
                       see_help);
}

// `place` is "--name", or "file:line: name".
Done assign(Config& config, const Option& option, const std::string& value, const std::string& place) {
    if (value.empty()) {
        return usage(place + ": the value is empty; give one, or leave the option out");
    }
    if (value.find_first_of(std::string_view{"\n\0", 2}) != std::string::npos) {
        return usage(place + ": the value has a line feed or NUL in it; remove it");
    }
    if (auto assigned = option.assign(config, value); !assigned) {
        return usage(fmt::format("{}: {}", place, assigned.error()));
    }
    const std::string key{option.name};
    config.origins[option.repeats ? key + ' ' + value : key] = place;
    config.settings.emplace_back(key, value);
    return {};
}

Done apply_line(Config& config, const FileLine& line, const std::string& file) {
    const std::string place = fmt::format("{}:{}: {}", file, line.number, line.name);
    if (line.name == "command") {
        if (line.words.front().empty()) {
            return usage(place + ": the program's name is empty; give its path");
        }
        config.command = line.words;
        config.origins["command"] = place;
        return {};
    }
    const Option* option = find_option(line.name);
    if (line.name == "config" || line.name == "help" || line.name == "version") {
        return usage(place + " works on the command line only; remove the line");
    }
    if (option == nullptr) {
        return usage(fmt::format("{}:{}: {}", file, line.number, unknown_option(line.name, line.name, "")));
    }
    if (line.words.size() > 1) {
        return usage(fmt::format("{}: {} is one word too many; put a value with blanks in it in quotes",
                                 place, quoted(line.words[1])));
    }
    return assign(config, *option, line.words.front(), place);
}

Done apply_file(Config& config, const std::string& file) {
    const auto text = read_config_file(file);
    if (!text) {
        return std::unexpected(text.error());
    }
    const auto lines = parse_config_text(*text, file);
    if (!lines) {
        return std::unexpected(lines.error());
    }
    std::map<std::string, unsigned> seen;
    for (const FileLine& line : *lines) {
        const Option* option = find_option(line.name);
        const std::string name{option == nullptr ? std::string_view{line.name} : option->name};
        const auto [before, first] = seen.emplace(name, line.number);
        if (!first && (option == nullptr || !option->repeats)) {
            return usage(fmt::format("{}:{}: {} is set twice, the first time on line {}; keep one", file,
                                     line.number, line.name, before->second));
        }
        if (auto done = apply_line(config, line, file); !done) {
            return done;
        }
    }
    return {};
}

std::string describe(const po::error& error) {
    if (const auto* syntax = dynamic_cast<const po::invalid_command_line_syntax*>(&error)) {
        const std::string name = syntax->get_option_name();
        if (syntax->kind() == po::invalid_syntax::extra_parameter) {
            return name + " takes no value; remove what follows the '='";
        }
        return fmt::format("{} has no value; give one behind it ({})", name, see_help);
    }
    return fmt::format("{} ({})", error.what(), see_help);
}

using Given = std::vector<po::basic_option<char>>;

std::expected<Given, Error> parse_options(const Arguments& arguments) {
    po::options_description known;
    auto add = known.add_options();
    add("config", po::value<std::string>(), "")("help", "")("version", "");
    for (const Option& option : options()) {
        const std::string name{option.name};
        if (option.argument.empty()) {
            add(name.c_str(), "");
        } else {
            add(name.c_str(), po::value<std::string>(), "");
        }
    }
    for (const Alias& alias : aliases()) {
        add(std::string{alias.name}.c_str(), po::value<std::string>(), "");
    }
    namespace style = po::command_line_style;
    constexpr int long_names_in_full =
        style::allow_long | style::long_allow_adjacent | style::long_allow_next;
    try {
        return po::command_line_parser{arguments}
            .options(known)
            .style(long_names_in_full)
            .allow_unregistered()
            .run()
            .options;
    } catch (const po::error& error) {
        return usage(describe(error));
    }
}

Done refuse_positional(const std::string& argument) {
    std::vector<std::string_view> modes{"run", "check"};
    modes.insert(modes.end(), command_words().begin(), command_words().end());
    if (const std::string_view guess = nearest(argument, modes); !guess.empty()) {
        return usage(fmt::format("unexpected argument {}; did you mean 'cede {}'? ({})", quoted(argument),
                                 guess, see_help));
    }
    return usage(fmt::format(
        "unexpected argument {}; the command of the children goes behind '--': cede OPTIONS -- {}",
        quoted(argument), argument.starts_with('/') ? argument : "/usr/bin/php-cgi8.2"));
}

// One option as it was split from the command line, before its value is looked at.
Done check_form(const po::basic_option<char>& option) {
    const std::string& first =
        option.original_tokens.empty() ? option.string_key : option.original_tokens.front();
    if (option.position_key >= 0 && !first.starts_with('-')) {
        return refuse_positional(first);
    }
    if (option.string_key == "command") {
        return usage("--command works in a file only; put the command behind '--'");
    }
    if (option.unregistered || option.position_key >= 0) {
        const std::string name = first.substr(std::min(first.find_first_not_of('-'), first.size()));
        return usage(unknown_option(first, name.substr(0, name.find('=')), "--"));
    }
    // The parser takes whatever follows. No value of ours starts like this, so it is the next option.
    if (option.original_tokens.size() > 1 && option.original_tokens[1].starts_with("--")) {
        return usage(fmt::format("--{} has no value; give one behind it ({})", option.string_key, see_help));
    }
    return {};
}

// Refuses what is no option, and options that are given twice.
Done check_given(const Given& given) {
    std::set<std::string> seen;
    for (const auto& option : given) {
        if (auto form = check_form(option); !form) {
            return form;
        }
        const Option* known = find_option(option.string_key);
        const std::string name{known == nullptr ? std::string_view{option.string_key} : known->name};
        if (!seen.insert(name).second && (known == nullptr || !known->repeats)) {
            return usage(fmt::format("--{} is given twice; keep one", option.string_key));
        }
    }
    return {};
}

Done apply_given(Config& config, const Given& given) {
    const auto listen = [](const auto& option) { return option.string_key == "listen"; };
    if (std::ranges::any_of(given, listen)) {
        config.listen.clear();
        std::erase_if(config.settings, [](const auto& setting) { return setting.first == "listen"; });
    }
    for (const auto& one : given) {
        const Option* option = find_option(one.string_key);
        if (option == nullptr) {
            continue;
        }
        const std::string value = option->argument.empty() ? "yes"
                                  : one.value.empty()      ? ""
                                                           : one.value.front();
        if (auto done = assign(config, *option, value, "--" + one.string_key); !done) {
            return done;
        }
    }
    return {};
}

// A command is split into words as in a file.
Done take_command_from_environment(Config& config, const Environment& environment) {
    const auto variable = environment.find("CEDE_CHILD");
    if (variable == environment.end()) {
        return {};
    }
    constexpr std::string_view place = "CEDE_CHILD in the environment";
    auto words = split_words(variable->second);
    if (!words) {
        return usage(fmt::format("{}: {}", place, words.error()));
    }
    if (words->empty() || words->front().empty()) {
        return usage(fmt::format("{}: it is empty; put the path of the program there, or unset it", place));
    }
    config.command = std::move(*words);
    config.origins["command"] = fmt::format("{}: command", place);
    return {};
}

Done settle_command(Config& config, Arguments command, const Environment& environment,
                    const StartedAs& started_as) {
    if (!command.empty()) {
        config.command = std::move(command);
        config.origins["command"] = "command";
    }
    if (config.command.empty()) {
        if (auto done = take_command_from_environment(config, environment); !done) {
            return done;
        }
    }
    if (config.command.empty() && !started_as.command.empty()) {
        config.command = started_as.command;
        config.origins["command"] = started_as.place + ": command";
    }
    if (config.command.empty() && !started_as.place.empty()) {
        return usage(
            fmt::format("{}: there is no lsphp.real beside it; put the real lsphp there under that "
                        "name, or name it with CEDE_CHILD or --config",
                        started_as.place));
    }
    if (config.command.empty()) {
        return usage(
            "there is no command; put it behind '--': cede --listen 127.0.0.1:9000 -- /usr/bin/php-cgi8.2");
    }
    if (config.command.front().empty()) {
        return usage("command: the program's name behind '--' is empty; give its path");
    }
    config.command.insert(config.command.end(), started_as.arguments.begin(), started_as.arguments.end());
    return {};
}

// From the least to the most important: file, command line. The environment fills what both leave open.
Done fill(Config& config, const Given& given, Arguments command, const Environment& environment,
          const StartedAs& started_as) {
    const auto file = std::ranges::find(given, "config", &po::basic_option<char>::string_key);
    if (file != given.end()) {
        if (file->value.empty() || file->value.front().empty()) {
            return usage("--config: the value is empty; give the path of a file");
        }
        if (auto done = apply_file(config, file->value.front()); !done) {
            return done;
        }
    }
    if (auto done = apply_given(config, given); !done) {
        return done;
    }
    if (auto done = settle_command(config, std::move(command), environment, started_as); !done) {
        return done;
    }
    return apply_environment(config, environment);
}

}  // namespace

unsigned KeepaliveLimit::children(unsigned total) const noexcept {
    if (!percent) {
        return std::min(value, total);
    }
    return static_cast<unsigned>(std::uint64_t{total} * std::min(value, 100U) / 100);
}

std::string where(const Config& config, std::string_view option, std::string_view value) {
    const std::string key = value.empty() ? std::string{option} : fmt::format("{} {}", option, value);
    const auto found = config.origins.find(key);
    return found != config.origins.end() ? found->second : fmt::format("--{}", option);
}

Config config_of(const std::vector<std::pair<std::string, std::string>>& settings,
                 const std::vector<std::string>& command, const Environment& environment,
                 std::vector<std::string>& dropped) {
    Config config;
    for (const auto& [name, value] : settings) {
        const Option* const option = find_option(name);
        if (option == nullptr || !assign(config, *option, value, fmt::format("--{}", name))) {
            dropped.push_back(fmt::format("--{} {}", name, value));
        }
    }
    config.command = command;
    if (const auto filled = apply_environment(config, environment); !filled) {
        dropped.push_back(filled.error().message);
    }
    if (!sizes_of(config)) {
        dropped.emplace_back("--start-servers, --min-spare, --max-spare");
        config.start_servers = config.min_spare = config.max_spare = std::nullopt;
    }
    if (!check_waiting(config)) {
        dropped.emplace_back("--overload");
        config.overload = Overload::fifo;
    }
    return config;
}

Environment environment_of(std::span<const char* const> entries) {
    Environment environment;
    for (const std::string_view entry : entries) {
        if (const std::size_t equals = entry.find('='); equals != std::string_view::npos) {
            environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
        }
    }
    return environment;
}

std::expected<Invocation, Error> parse_invocation(std::span<const char* const> argv,
                                                  const Environment& environment,
                                                  const StartedAs& started_as) {
    Arguments arguments(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
    const auto separator = std::ranges::find(arguments, "--");
    Arguments command;
    if (separator != arguments.end()) {
        command.assign(separator + 1, arguments.end());
        arguments.erase(separator, arguments.end());
    }
    Invocation invocation;
    if (!arguments.empty() && (arguments.front() == "run" || arguments.front() == "check")) {
        invocation.mode = arguments.front() == "check" ? Mode::check : Mode::run;
        arguments.erase(arguments.begin());
    }
    const auto asks_for = [&arguments](std::string_view option) {
        return std::ranges::find(arguments, option) != arguments.end();
    };
    if (asks_for("--help") || asks_for("-h")) {
        invocation.mode = Mode::help;
        invocation.text = help_text();
        return invocation;
    }
    if (asks_for("--version")) {
        invocation.mode = Mode::version;
        invocation.text = "cede " CEDE_VERSION "\n";
        return invocation;
    }
    const auto given = parse_options(arguments);
    if (!given) {
        return std::unexpected(given.error());
    }
    if (auto checked = check_given(*given); !checked) {
        return std::unexpected(checked.error());
    }
    if (auto filled = fill(invocation.config, *given, std::move(command), environment, started_as); !filled) {
        return std::unexpected(filled.error());
    }
    if (auto sizes = sizes_of(invocation.config); !sizes) {
        return std::unexpected(sizes.error());
    }
    if (auto waiting = check_waiting(invocation.config); !waiting) {
        return std::unexpected(waiting.error());
    }
    return invocation;
}

}  // namespace cede::pm
