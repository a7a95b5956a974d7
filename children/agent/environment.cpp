// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

#include "children/agent/agent.h"
#include "children/zygote_protocol.h"

namespace cede::agent {
namespace {

constexpr char preload_variable[] = "LD_PRELOAD";

constinit char hidden_names[128] = {};

// A decimal number and the blank behind it. False unless there is one below the bound.
bool read_number(const char*& text, long bound, int& value) noexcept {
    char* end = nullptr;
    const long number = std::strtol(text, &end, 10);
    if (end == text || number < 0 || number >= bound) {
        return false;
    }
    text = *end == ' ' ? end + 1 : end;
    value = static_cast<int>(number);
    return true;
}

bool names(const char* entry, const char* name, std::size_t length) noexcept {
    return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

bool is_hidden(const char* entry) noexcept {
    const char* name = hidden_names;
    while (*name != '\0') {
        const char* end = std::strchr(name, ':');
        const std::size_t length = end != nullptr ? static_cast<std::size_t>(end - name) : std::strlen(name);
        if (length > 0 && names(entry, name, length)) {
            return true;
        }
        name += length + (end != nullptr ? 1 : 0);
    }
    return false;
}

bool is_php() noexcept {
    return dlsym(RTLD_DEFAULT, "sapi_module") != nullptr;
}

}  // namespace

bool read_environment() noexcept {
    const char* text = std::getenv(children::agent_variable);
    if (text == nullptr) {
        return false;
    }
    constexpr long max_fd = 1 << 20;
    int version = 0;
    int slots = 0;
    int first = 0;
    if (!read_number(text, 1 << 16, version) || version != static_cast<int>(children::protocol_version) ||
        !read_number(text, max_fd, agent.zygote_channel) || !read_number(text, max_fd, agent.scoreboard) ||
        !read_number(text, max_fd, agent.handoff) || !read_number(text, max_fd, first) ||
        !read_number(text, max_listeners + 1, agent.listener_count) || !read_number(text, 1 << 20, slots)) {
        return false;
    }
    if (*text != '\0' && !read_number(text, slots, agent.own_slot)) {
        return false;
    }
    for (int i = 0; i < agent.listener_count; ++i) {
        agent.listeners[i] = first + i;
    }
    agent.library = first + agent.listener_count;
    agent.slot_count = static_cast<std::uint32_t>(slots);
    if (const char* hidden = std::getenv(children::hidden_variable);
        hidden != nullptr && std::strlen(hidden) < sizeof hidden_names) {
        std::strcpy(hidden_names, hidden);
    }
    // A wrapper script's interpreter must hand everything on to the PHP that it executes.
    if (is_php()) {
        clean_environment(false);
    }
    return true;
}

void clean_environment(bool php_started) noexcept {
    constexpr std::size_t prefix = sizeof children::saved_preload_variable - sizeof preload_variable;
    static_assert(prefix == sizeof "CEDE_" - 1);
    char** keep = environ;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (names(*entry, children::agent_variable, sizeof children::agent_variable - 1) ||
            names(*entry, children::hidden_variable, sizeof children::hidden_variable - 1) ||
            (!agent.environment_cleaned && names(*entry, preload_variable, sizeof preload_variable - 1)) ||
            (php_started && is_hidden(*entry))) {
            continue;
        }
        if (names(*entry, children::saved_preload_variable, sizeof children::saved_preload_variable - 1)) {
            *entry += prefix;  // what remains is LD_PRELOAD=... as it was
        }
        *keep++ = *entry;
    }
    *keep = nullptr;
    agent.environment_cleaned = true;
}

}  // namespace cede::agent
