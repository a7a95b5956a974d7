// SPDX-License-Identifier: Apache-2.0
#include "children/agent/title.h"

#include <cstddef>
#include <cstring>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "children/agent/agent.h"

namespace cede::agent {
namespace {

constexpr std::size_t short_name_size = 16;  // with its NUL (prctl(2), PR_SET_NAME)

struct Room {
    char* begin = nullptr;
    std::size_t arguments = 0;  // bytes of the arguments
    std::size_t all = 0;        // those of the environment behind them as well
    char* saved = nullptr;      // what stood in the first `saved_size` of them
    std::size_t saved_size = 0;
    char short_name[short_name_size] = {};
};
constinit Room room{};

// The end of those strings that follow each other from `at` on; `whole`: all of them do.
char* end_of(char* const* strings, char* at, bool& whole) noexcept {
    for (; *strings != nullptr; ++strings) {
        if (*strings != at) {
            whole = false;
            break;
        }
        at += std::strlen(at) + 1;
    }
    return at;
}

struct Text {
    char bytes[sizeof "cede: zygote []" + sizeof children::Control::title] = {};
    std::size_t size = 0;

    void add(const char* text, std::size_t longest) noexcept {
        for (; longest > 0 && *text != '\0'; --longest) {
            bytes[size++] = *text++;
        }
    }
};

Text title() noexcept {
    const char* const label = agent.control->title;
    Text text;
    text.add("cede: zygote", sizeof "cede: zygote");
    if (*label != '\0') {
        text.add(" [", 2);
        text.add(label, sizeof children::Control::title);
        text.add("]", 1);
    }
    return text;
}

// Not within a character of UTF-8.
std::size_t cut(const Text& text, std::size_t size) noexcept {
    if (text.size <= size) {
        return text.size;
    }
    while (size > 0 && (static_cast<unsigned char>(text.bytes[size]) & 0xc0U) == 0x80U) {
        --size;
    }
    return size;
}

}  // namespace

void keep_title_room(int argc, char** argv, char** environment) noexcept {
    if (argc < 1) {
        return;
    }
    bool whole = true;
    room.begin = argv[0];
    char* const middle = end_of(argv, room.begin, whole);
    char* const end = whole ? end_of(environment, middle, whole) : middle;
    room.arguments = static_cast<std::size_t>(middle - room.begin);
    room.all = static_cast<std::size_t>(end - room.begin);
}

void show_zygote_title() noexcept {
    if (room.all == 0) {
        return;
    }
    const Text text = title();
    const std::size_t length = cut(text, room.all - 1);
    // The kernel shows all of the arguments if their last byte is NUL, and else what stands before the first
    // NUL, wherever that is.
    const std::size_t end = length + 1 > room.arguments ? length + 1 : room.arguments;
    void* const memory = mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    room.saved = static_cast<char*>(memory);
    room.saved_size = end;
    std::memcpy(room.saved, room.begin, end);
    std::memcpy(room.begin, text.bytes, length);
    std::memset(room.begin + length, 0, end - length);
    prctl(PR_GET_NAME, room.short_name, 0, 0, 0);
    prctl(PR_SET_NAME, "cede-zygote", 0, 0, 0);
}

void restore_title() noexcept {
    if (room.saved == nullptr) {
        return;
    }
    std::memcpy(room.begin, room.saved, room.saved_size);
    munmap(room.saved, room.saved_size);
    room.saved = nullptr;
    prctl(PR_SET_NAME, room.short_name, 0, 0, 0);
}

}  // namespace cede::agent
