// SPDX-License-Identifier: Apache-2.0
#include "pm/child_environment.h"

#include <algorithm>
#include <string_view>

#include <doctest/doctest.h>

#include "pm/lsapi_environment.h"

using cede::pm::child_environment;
using cede::pm::chosen_environment;
using cede::pm::EnvironmentOptions;
using cede::pm::lone_environment;
using cede::pm::lsapi_variables;
using cede::pm::LsapiFate;
using cede::pm::LsapiVariable;
using cede::pm::parse_variable;

namespace {

using Strings = std::vector<std::string>;

Strings environment(std::vector<const char*> own, std::size_t listeners = 1, std::uint32_t slots = 10) {
    return child_environment(own, "/lib/agent.so", listeners, slots);
}

Strings child_alone(std::vector<const char*> own) {
    return lone_environment(own);
}

std::vector<const char*> pointers_to(const Strings& strings) {
    std::vector<const char*> pointers;
    for (const std::string& string : strings) {
        pointers.push_back(string.c_str());
    }
    return pointers;
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
    REQUIRE(result.size() >= 5);
    CHECK(Strings(result.begin() + 1, result.begin() + 5) ==
          Strings{"PATH=/bin", "EMPTY=", "A=b=c", "TZ=UTC"});
}

TEST_CASE("the first string is one that lsphp may write a script's path over") {
    for (const char* own : {"PATH=/bin", "LSAPI_PADDING=short"}) {
        const Strings result = environment({own, "LSAPI_PADDING="});
        CHECK(result.front() == "LSAPI_PADDING=" + std::string(64, 'x'));
        CHECK(named(result, "LSAPI_PADDING") == 1);
        CHECK(child_alone({own, "LSAPI_PADDING="}).front() == result.front());
        CHECK(named(child_alone({own, "LSAPI_PADDING="}), "LSAPI_PADDING") == 1);
    }
}

TEST_CASE("of lsphp's variables a child gets those that it honours by itself, and no others") {
    std::vector<std::string> own;
    for (const LsapiVariable& variable : lsapi_variables()) {
        own.push_back(std::string{variable.name} + (variable.prefix ? "_USE_SHM=1" : "=1"));
    }
    own.emplace_back("LSAPI_NOBODY_KNOWS=1");
    const std::vector<const char*> pointers = pointers_to(own);
    const Strings result = environment(pointers);
    for (const LsapiVariable& variable : lsapi_variables()) {
        const std::string entry = std::string{variable.name} + (variable.prefix ? "_USE_SHM=1" : "=1");
        CAPTURE(entry);
        CHECK(has(result, entry) == (variable.fate == LsapiFate::handed_on));
    }
    CHECK(has(result, "LSAPI_NOBODY_KNOWS=1"));
}

TEST_CASE("a lone lsphp gets all but what was meant for cede") {
    const Strings result = child_alone({"A=1", "LSAPI_MAX_REQS=5", "PHP_FCGI_CHILDREN=0",
                                        "CEDE_CHILD=/x/lsphp", "NOTIFY_SOCKET=/run/n", "LD_PRELOAD=/x.so"});
    CHECK(Strings(result.begin() + 1, result.end()) ==
          Strings{"A=1", "LSAPI_MAX_REQS=5", "PHP_FCGI_CHILDREN=0", "LD_PRELOAD=/x.so"});
}

TEST_CASE("what was meant for the supervisor is not handed on") {
    const Strings result =
        environment({"LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=x", "NOTIFY_SOCKET=/run/n",
                     "WATCHDOG_PID=1", "WATCHDOG_USEC=1", "MAINPID=1", "INVOCATION_ID=x",
                     "JOURNAL_STREAM=8:9", "PHP_FCGI_CHILDREN=4", "QUERY_STRING=a=b", "CEDE_AGENT=1 2 3",
                     "CEDE_HIDE=PATH", "CEDE_CHILD=/x", "CEDE_LD_PRELOAD=x", "LISTEN_FDS_OTHER=1"});
    for (const std::string_view name :
         {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
          "MAINPID", "INVOCATION_ID", "JOURNAL_STREAM", "PHP_FCGI_CHILDREN", "QUERY_STRING", "CEDE_CHILD",
          "CEDE_LD_PRELOAD"}) {
        CAPTURE(name);
        CHECK(named(result, name) == 0);
    }
    CHECK(has(result, "LISTEN_FDS_OTHER=1"));
    CHECK_FALSE(has(result, "CEDE_AGENT=1 2 3"));
    CHECK_FALSE(has(result, "CEDE_HIDE=PATH"));
}

TEST_CASE("the agent learns its descriptors, the listeners' number and the slots") {
    CHECK(has(environment({}, 1, 10), "CEDE_AGENT=4 100 101 102 103 1 10"));
    CHECK(has(environment({}, 64, 10000), "CEDE_AGENT=4 100 101 102 103 64 10000"));
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

TEST_CASE("children have no limits of their own, and scripts do not see how that is said") {
    for (const char* own : {"PATH=/bin", "PHP_FCGI_MAX_REQUESTS=500", "LSAPI_MAX_IDLE=30"}) {
        const Strings result = environment({own});
        CHECK(has(result, "PHP_FCGI_MAX_REQUESTS=0"));
        CHECK(named(result, "PHP_FCGI_MAX_REQUESTS") == 1);
        CHECK(has(result, "LSAPI_MAX_IDLE=0"));
        CHECK(named(result, "LSAPI_MAX_IDLE") == 1);
        CHECK(has(result, "CEDE_HIDE=PHP_FCGI_MAX_REQUESTS:LSAPI_MAX_IDLE:LSAPI_PADDING"));
    }
}

TEST_CASE("strange entries are passed on as they are") {
    const Strings result = environment({"NO_EQUALS_SIGN", "=hidden", "LD_PRELOAD", ""});
    CHECK(has(result, "NO_EQUALS_SIGN"));
    CHECK(has(result, "=hidden"));
    CHECK(has(result, "LD_PRELOAD=/lib/agent.so"));
}

TEST_CASE("variables are added to cede's own, or take the place of one") {
    const std::vector<const char*> own{"PATH=/bin", "SECRET=x", "A=old"};
    const EnvironmentOptions options{{{"A", "new"}, {"B", ""}, {"C", "a=b c"}}, false};
    CHECK(chosen_environment(own, options) == Strings{"PATH=/bin", "SECRET=x", "A=new", "B=", "C=a=b c"});
    CHECK(chosen_environment(own, {}) == Strings{"PATH=/bin", "SECRET=x", "A=old"});
}

TEST_CASE("a cleared environment has what was set, and what cede itself needs") {
    const std::vector<const char*> own{"PATH=/bin", "SECRET=x", "LD_PRELOAD=/x.so"};
    const Strings chosen = chosen_environment(own, {{{"A", "1"}}, true});
    CHECK(chosen == Strings{"A=1"});
    const Strings result = environment(pointers_to(chosen));
    CHECK(has(result, "A=1"));
    CHECK(has(result, "LD_PRELOAD=/lib/agent.so"));
    CHECK(named(result, "CEDE_AGENT") == 1);
    CHECK(named(result, "PATH") == 0);
    CHECK(named(result, "SECRET") == 0);
}

TEST_CASE("a value with a dollar sign in front is that of cede's own variable, or empty") {
    const std::vector<const char*> own{"PATH=/bin", "HOME=/root", "EMPTY="};
    for (const bool clear : {false, true}) {
        const Strings result = chosen_environment(own, {{{"PATH", "$PATH"},
                                                         {"H", "$HOME"},
                                                         {"NONE", "$MISSING"},
                                                         {"E", "$EMPTY"},
                                                         {"BARE", "$"},
                                                         {"INSIDE", "a$HOME"}},
                                                        clear});
        for (const char* entry : {"PATH=/bin", "H=/root", "NONE=", "E=", "BARE=", "INSIDE=a$HOME"}) {
            CAPTURE(entry);
            CHECK(has(result, entry));
        }
        CHECK(named(result, "PATH") == 1);
        CHECK(has(result, "HOME=/root") == !clear);
    }
}

TEST_CASE("a variable is a name, an equals sign and any value") {
    CHECK(parse_variable("A=1") == std::pair{std::string{"A"}, std::string{"1"}});
    CHECK(parse_variable("_a9.b-c= x=y") == std::pair{std::string{"_a9.b-c"}, std::string{" x=y"}});
    CHECK(parse_variable("EMPTY=")->second.empty());
    CHECK(parse_variable("LSPHPRC=/etc/php.ini").has_value());
    CHECK(parse_variable("LD_LIBRARY_PATH=/x").has_value());
    CHECK(parse_variable("A").error().find("A=$A") != std::string::npos);
    for (const char* bad : {"=1", "9A=1", "A B=1", " A=1", "\xc3\xa9=1", "A$=1", "-A=1"}) {
        CAPTURE(bad);
        const auto variable = parse_variable(bad);
        REQUIRE_FALSE(variable.has_value());
        CHECK(variable.error().find("name of a variable") != std::string::npos);
    }
}

TEST_CASE("what controls cede or the children's programs can not be set, and the reason is said") {
    struct Row {
        const char* name;
        const char* reason;
    };
    for (const Row& row :
         {Row{"LD_PRELOAD", "agent"}, Row{"CEDE_AGENT", "CEDE_"}, Row{"CEDE_ANYTHING", "CEDE_"},
          Row{"PHP_FCGI_CHILDREN", "--children"}, Row{"PHP_FCGI_MAX_REQUESTS", "--max-requests"},
          Row{"QUERY_STRING", "php-cgi"}, Row{"NOTIFY_SOCKET", "service manager"},
          Row{"LISTEN_FDS", "service manager"}, Row{"LSAPI_CHILDREN", "lsphp"},
          Row{"LSAPI_MAX_IDLE", "lsphp"}, Row{"LSAPI_PADDING", "lsphp"}}) {
        CAPTURE(row.name);
        const auto variable = parse_variable(std::string{row.name} + "=1");
        REQUIRE_FALSE(variable.has_value());
        CHECK(variable.error().find(row.reason) != std::string::npos);
        CHECK(variable.error().starts_with(row.name));
    }
}
