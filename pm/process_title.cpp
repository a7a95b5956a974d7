// SPDX-License-Identifier: Apache-2.0
#include "pm/process_title.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/prctl.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

namespace cede::pm {
namespace {

constexpr std::size_t short_name_size = 15;  // prctl(2), PR_SET_NAME

constinit TitleRoom kept;

std::span<char* const> own_environment() noexcept {
    std::size_t count = 0;
    while (environ != nullptr && environ[count] != nullptr) {
        ++count;
    }
    return {environ, count};
}

// The end of those strings that follow each other from `at` on.
char* end_of(std::span<char* const> strings, char* at, bool& whole) noexcept {
    for (char* const string : strings) {
        if (string != at) {
            whole = false;
            break;
        }
        at += std::strlen(at) + 1;
    }
    return at;
}

// Lives as long as the process, for anybody may hold what getenv() returned.
void move_environment() {
    static std::vector<std::string> strings;
    static std::vector<char*> pointers;
    static std::string name;
    if (!pointers.empty()) {
        return;
    }
    for (char* const entry : own_environment()) {
        strings.emplace_back(entry);
    }
    for (std::string& string : strings) {
        pointers.push_back(string.data());
    }
    pointers.push_back(nullptr);
    environ = pointers.data();
    // They point into the first argument.
    name = program_invocation_name;
    program_invocation_name = name.data();
    program_invocation_short_name = name.data() + (name.rfind('/') + 1);
}

}  // namespace

TitleRoom title_room(std::span<char* const> arguments, std::span<char* const> environment) {
    if (arguments.empty()) {
        return {};
    }
    bool whole = true;
    char* const begin = arguments.front();
    char* const middle = end_of(arguments, begin, whole);
    char* const end = whole ? end_of(environment, middle, whole) : middle;
    return {begin, static_cast<std::size_t>(middle - begin), static_cast<std::size_t>(end - begin)};
}

std::string_view cut(std::string_view text, std::size_t size) noexcept {
    if (text.size() <= size) {
        return text;
    }
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
    while (size > 0 && continues(text[size])) {
        --size;
    }
    return text.substr(0, size);
}

void write_title(const TitleRoom& room, std::string_view title) noexcept {
    if (room.all == 0) {
        return;
    }
    title = cut(title, room.all - 1);
    std::memcpy(room.begin, title.data(), title.size());
    // The kernel shows all of the arguments if their last byte is NUL, and else what stands before the first
    // NUL, wherever that is.
    const std::size_t end = std::max(room.arguments, title.size() + 1);
    std::memset(room.begin + title.size(), 0, end - title.size());
}

void keep_title_room(std::span<char* const> arguments) noexcept {
    kept = title_room(arguments, own_environment());
}

void show_title(std::string_view role, std::string_view label) {
    const std::string behind = label.empty() ? "" : fmt::format(" [{}]", label);
    const std::string short_name{cut("cede" + behind, short_name_size)};
    prctl(PR_SET_NAME, short_name.c_str(), 0, 0, 0);
    move_environment();
    write_title(kept, fmt::format("cede: {}{}", role, behind));
}

}  // namespace cede::pm
