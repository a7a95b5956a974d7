// SPDX-License-Identifier: Apache-2.0
// What the library takes from the process that it is loaded into, and what it puts there.
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "tests/agent/stand_in.h"

using namespace cede::tests;

namespace {

using Names = std::set<std::string>;

std::string output_of(const std::string& tool_and_options) {
    const std::string line = tool_and_options + " '" + agent_path() + "'";
    FILE* const pipe = ::popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string text;
    char buffer[4096];
    for (std::size_t size = 0; (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        text.append(buffer, size);
    }
    // binutils, which every compiler on Linux needs
    REQUIRE(::pclose(pipe) == 0);
    return text;
}

// The names in the output of nm whose kind is one of `kinds`, without versions.
Names symbols(const std::string& options, const std::string& kinds) {
    Names names;
    std::istringstream lines{output_of("nm " + options)};
    for (std::string line; std::getline(lines, line);) {
        const auto blank = line.rfind(' ');
        if (blank != std::string::npos && blank > 0 && kinds.find(line[blank - 1]) != std::string::npos) {
            const std::string name = line.substr(blank + 1);
            names.insert(name.substr(0, name.find('@')));
        }
    }
    return names;
}

// What agent.map lists as global.
Names mapped() {
    std::ifstream file{source_path("children/agent/agent.map")};
    std::string text{std::istreambuf_iterator<char>{file}, {}};
    const auto from = text.find("global:");
    const auto to = text.find("local:");
    REQUIRE(from != std::string::npos);
    REQUIRE(to != std::string::npos);
    Names names;
    std::string name;
    for (const char letter : text.substr(from + 7, to - from - 7)) {
        if (std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_') {
            name += letter;
        } else if (!name.empty()) {
            names.insert(std::exchange(name, {}));
        }
    }
    return names;
}

// Each for a reason; a name more than these is to be thought about before it is added.
const Names imports{
    // the environment, read once and cleaned
    "__environ", "environ", "getenv", "strchr", "strlen", "strncmp", "strncpy", "strtol", "memcpy", "memmove",
    // errno
    "__errno_location",
    // the functions behind the wrappers
    "dlsym",
    // a script's fork(2)
    "__register_atfork", "dup3", "open64",
    // whether PHP waits on the listener
    "fstat64",
    // zygote and children
    "fork", "vfork", "_exit", "waitpid", "setsid", "getpid", "getppid", "kill", "getrlimit64", "fcntl64",
    "mmap64", "munmap", "sigfillset", "sigprocmask",
    // the number of threads; the only functions here that allocate, once, in the zygote
    "opendir", "readdir64", "closedir",
    // the zygote's title
    "prctl", "getpriority", "setpriority", "memset",
    // what becomes of a request: its variables, its wait, its peer
    "getsockopt", "memcmp", "strnlen",
    // waiting and messages
    "clock_gettime", "epoll_create1", "epoll_ctl", "epoll_wait", "getpeername", "ppoll", "recvmsg",
    "sendmsg"};

}  // namespace

TEST_CASE("the agent exports the functions that agent.map lists and nothing else") {
    const Names exported = symbols("-D --defined-only", "TtWwVvDdBbRrGgSsiIuU");
    CHECK(exported == mapped());
    for (const std::string& name : exported) {
        CAPTURE(name);
        CHECK(mapped().contains(name));
    }
    CHECK(exported.contains("accept"));
    CHECK(exported.contains("__read_chk"));
    CHECK(exported.contains("select"));
    CHECK(exported.contains("writev"));
    // What FD_ISSET calls in a program that was compiled with _FORTIFY_SOURCE has nothing to wait for.
    CHECK_FALSE(exported.contains("__fdelt_chk"));
}

TEST_CASE("the agent imports what this list names and nothing else") {
    const Names used = symbols("-D --undefined-only", "U");
    for (const std::string& name : used) {
        CAPTURE(name);
        CHECK(imports.contains(name));
    }
    for (const std::string& name : imports) {
        CAPTURE(name);
        CHECK(used.contains(name));
    }
}

TEST_CASE("nothing that allocates, prints, throws or aborts is imported") {
    const Names used = symbols("-D --undefined-only", "UwvV");
    for (const std::string part : {"_Z", "__cxa_throw", "__cxa_begin", "__gxx", "_Unwind", "malloc", "calloc",
                                   "realloc", "free", "printf", "puts", "abort", "assert", "__stack_chk",
                                   "_chk", "exit_group", "syslog", "perror", "signal"}) {
        for (const std::string& name : used) {
            CAPTURE(name);
            CHECK_FALSE(name.starts_with(part));
        }
    }
}

TEST_CASE("weak imports are those of the compiler's own start-up code") {
    for (const std::string& name : symbols("-D --undefined-only", "wv")) {
        CAPTURE(name);
        CHECK((name == "__gmon_start__" || name == "__cxa_finalize" || name == "_ITM_registerTMCloneTable" ||
               name == "_ITM_deregisterTMCloneTable"));
    }
}

TEST_CASE("the agent needs libc and no other library") {
    std::istringstream lines{output_of("readelf -dW")};
    int needed = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("(NEEDED)") != std::string::npos) {
            CAPTURE(line);
            CHECK(line.find("[libc.so.6]") != std::string::npos);
            ++needed;
        }
        // Symbols are bound when it is loaded: never inside a request.
        CHECK(line.find("(TEXTREL)") == std::string::npos);
    }
    CHECK(needed == 1);
    CHECK(output_of("readelf -dW").find("BIND_NOW") != std::string::npos);
}

TEST_CASE("there are neither tables of exceptions nor types at run time") {
    const std::string sections = output_of("readelf -SW");
    CHECK(sections.find(".text") != std::string::npos);
    CHECK(sections.find(".gcc_except_table") == std::string::npos);
    CHECK(sections.find(".tbss") == std::string::npos);
    CHECK(sections.find(".tdata") == std::string::npos);
    for (const std::string& name : symbols("-a", "VvWwRrDdTtuBb")) {
        CAPTURE(name);
        CHECK_FALSE(name.starts_with("_ZTI"));
        CHECK_FALSE(name.starts_with("_ZTS"));
        CHECK_FALSE(name.starts_with("_ZTV"));
        CHECK_FALSE(name.starts_with("_ZGV"));
    }
}

TEST_CASE("its memory is neither writable code nor an executable stack") {
    std::istringstream lines{output_of("readelf -lW")};
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.find("RWE") == std::string::npos);
    }
}
