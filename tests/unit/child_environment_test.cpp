// SPDX-License-Identifier: Apache-2.0
#include "pm/child_environment.h"

#include <algorithm>
#include <string_view>

#include <doctest/doctest.h>

using cede::pm::child_environment;

namespace {

using Strings = std::vector<std::string>;

Strings environment(std::vector<const char*> own, std::size_t listeners = 1, std::uint32_t slots = 10) {
    return child_environment(own, "/lib/agent.so", listeners, slots);
}

bool has(const Strings& strings, std::string_view entry) {
    return std::ranges::find(strings, entry) != strings.end();
}

std::ptrdiff_t named(const Strings& strings, std::string_view name) {
    return std::ranges::count_if(
        strings, [name](std::string_view entry) { return entry.substr(0, entry.find('=')) == name; });
}

}  // namespace

TEST_CASE("what the supervisor was given is handed on, in its order") {
    const Strings result = environment({"PATH=/bin", "EMPTY=", "A=b=c", "TZ=UTC"});
    REQUIRE(result.size() >= 4);
    CHECK(Strings(result.begin(), result.begin() + 4) == Strings{"PATH=/bin", "EMPTY=", "A=b=c", "TZ=UTC"});
}

TEST_CASE("what was meant for the supervisor is not handed on") {
    const Strings result =
        environment({"LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=x", "NOTIFY_SOCKET=/run/n",
                     "WATCHDOG_PID=1", "WATCHDOG_USEC=1", "MAINPID=1", "INVOCATION_ID=x",
                     "JOURNAL_STREAM=8:9", "PHP_FCGI_CHILDREN=4", "QUERY_STRING=a=b", "CEDE_AGENT=1 2 3",
                     "CEDE_HIDE=PATH", "CEDE_LD_PRELOAD=x", "LISTEN_FDS_OTHER=1"});
    for (const std::string_view name :
         {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
          "MAINPID", "INVOCATION_ID", "JOURNAL_STREAM", "PHP_FCGI_CHILDREN", "QUERY_STRING",
          "CEDE_LD_PRELOAD"}) {
        CAPTURE(name);
        CHECK(named(result, name) == 0);
    }
    CHECK(has(result, "LISTEN_FDS_OTHER=1"));
    CHECK_FALSE(has(result, "CEDE_AGENT=1 2 3"));
    CHECK_FALSE(has(result, "CEDE_HIDE=PATH"));
}

TEST_CASE("the agent learns its descriptors, the listeners' number and the slots") {
    CHECK(has(environment({}, 1, 10), "CEDE_AGENT=1 100 101 102 103 1 10"));
    CHECK(has(environment({}, 64, 10000), "CEDE_AGENT=1 100 101 102 103 64 10000"));
    CHECK(named(environment({"CEDE_AGENT=x"}), "CEDE_AGENT") == 1);
}

TEST_CASE("the agent is preloaded, in front of what the user preloads") {
    const Strings plain = environment({});
    CHECK(has(plain, "LD_PRELOAD=/lib/agent.so"));
    CHECK(named(plain, "CEDE_LD_PRELOAD") == 0);

    const Strings both = environment({"LD_PRELOAD=/lib/a.so:/lib/b.so"});
    CHECK(has(both, "LD_PRELOAD=/lib/agent.so:/lib/a.so:/lib/b.so"));
    CHECK(has(both, "CEDE_LD_PRELOAD=/lib/a.so:/lib/b.so"));
    CHECK(named(both, "LD_PRELOAD") == 1);

    const Strings empty = environment({"LD_PRELOAD="});
    CHECK(has(empty, "CEDE_LD_PRELOAD="));
    CHECK(named(empty, "LD_PRELOAD") == 1);
}

TEST_CASE("php-cgi's own limit of requests is lifted, unless the user set one") {
    const Strings lifted = environment({"PATH=/bin"});
    CHECK(has(lifted, "PHP_FCGI_MAX_REQUESTS=0"));
    CHECK(has(lifted, "CEDE_HIDE=PHP_FCGI_MAX_REQUESTS"));

    const Strings kept = environment({"PHP_FCGI_MAX_REQUESTS=500"});
    CHECK(has(kept, "PHP_FCGI_MAX_REQUESTS=500"));
    CHECK(named(kept, "PHP_FCGI_MAX_REQUESTS") == 1);
    CHECK(named(kept, "CEDE_HIDE") == 0);
}

TEST_CASE("strange entries are passed on as they are") {
    const Strings result = environment({"NO_EQUALS_SIGN", "=hidden", "LD_PRELOAD", ""});
    CHECK(has(result, "NO_EQUALS_SIGN"));
    CHECK(has(result, "=hidden"));
    CHECK(has(result, "LD_PRELOAD=/lib/agent.so"));
}
