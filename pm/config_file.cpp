// SPDX-License-Identifier: Apache-2.0
#include "pm/config_file.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "children/unique_fd.h"
#include "pm/limits.h"
#include "pm/words.h"

namespace cede::pm {
namespace {

std::string_view trim(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

Error at_line(std::string_view path, unsigned number, std::string_view problem) {
    return Error{fmt::format("{}:{}: {}", path, number, problem), Error::usage};
}

std::expected<FileLine, Error> parse_line(std::string_view line, unsigned number, std::string_view path) {
    const std::size_t equals = line.find('=');
    if (line.front() == '[' || equals == std::string_view::npos) {
        return std::unexpected(
            at_line(path, number, quoted(line) + " is not a setting; write it as 'name = value'"));
    }
    FileLine parsed{number, std::string{trim(line.substr(0, equals))}, {}};
    if (parsed.name.empty()) {
        return std::unexpected(
            at_line(path, number, "there is no name before '='; write it as 'name = value'"));
    }
    auto words = split_words(trim(line.substr(equals + 1)));
    if (!words) {
        return std::unexpected(at_line(path, number, parsed.name + ": " + words.error()));
    }
    if (words->empty()) {
        return std::unexpected(
            at_line(path, number, parsed.name + ": the value is empty; give one, or remove the line"));
    }
    parsed.words = std::move(*words);
    return parsed;
}

Error file_error(const std::string& path, std::string_view problem) {
    return Error{fmt::format("--config: {}: {}", path, problem), Error::failure};
}

}  // namespace

std::expected<std::vector<FileLine>, Error> parse_config_text(std::string_view text, std::string_view path) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text.starts_with(byte_order_mark)) {
        text.remove_prefix(byte_order_mark.size());
    }
    std::vector<FileLine> lines;
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::size_t end = text.find('\n');
        const std::string_view line = trim(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.empty() || line.front() == '#') {
            continue;
        }
        auto parsed = parse_line(line, number, path);
        if (!parsed) {
            return std::unexpected(parsed.error());
        }
        lines.push_back(std::move(*parsed));
    }
    return lines;
}

std::expected<std::string, Error> read_config_file(const std::string& path) {
    // O_NONBLOCK: opening a named pipe must not wait for a writer.
    const children::UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) {
        const std::string reason = std::generic_category().message(errno);
        return std::unexpected(file_error(path, reason + "; check the path and who may read it"));
    }
    if (!S_ISREG(status.st_mode)) {
        return std::unexpected(file_error(path, "this is not a regular file; give the path of a text file"));
    }
    std::string content;
    char buffer[16384];
    for (;;) {
        const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            const std::string reason = std::generic_category().message(errno);
            return std::unexpected(file_error(path, reason + "; check the file system"));
        }
        if (got == 0) {
            return content;
        }
        content.append(buffer, static_cast<std::size_t>(got));
        if (content.size() > limits::largest_config_file) {
            return std::unexpected(file_error(
                path, fmt::format("the file is larger than {} bytes; is it a configuration of cede?",
                                  limits::largest_config_file)));
        }
    }
}

}  // namespace cede::pm
