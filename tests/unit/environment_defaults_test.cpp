// SPDX-License-Identifier: Apache-2.0
#include "pm/environment_defaults.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::chrono_literals;

namespace {

Config applied(const Environment& environment, Config config = {}) {
    const auto done = apply_environment(config, environment);
    INFO((done ? std::string{} : done.error().message));
    REQUIRE(done.has_value());
    return config;
}

void check_refused(const Environment& environment, const std::vector<std::string_view>& parts) {
    Config config;
    const auto done = apply_environment(config, environment);
    REQUIRE_FALSE(done.has_value());
    CAPTURE(done.error().message);
    CHECK(done.error().exit_status == Error::usage);
    for (const std::string_view part : parts) {
        CAPTURE(part);
        CHECK(done.error().message.find(part) != std::string::npos);
    }
}

Config with_origin(std::string_view option) {
    Config config;
    config.children = 3;
    config.max_requests = 4;
    config.request_timeout = 5s;
    config.origins[std::string{option}] = "--" + std::string{option};
    return config;
}

}  // namespace

TEST_CASE("an environment that says nothing changes nothing") {
    const Config config = applied({{"PATH", "/bin"}});
    CHECK(config.children == Config{}.children);
    CHECK(config.max_requests == 0);
    CHECK(config.request_timeout == 0s);
    CHECK(config.origins.empty());
}

TEST_CASE("the number of children is lsphp's variable, else php-cgi's") {
    CHECK(applied({{"PHP_FCGI_CHILDREN", "7"}}).children == 7);
    CHECK(applied({{"PHP_FCGI_CHILDREN", "7"}, {"LSAPI_CHILDREN", "8"}}).children == 8);
    const Config config =
        applied({{"PHP_FCGI_CHILDREN", "7"}, {"LSAPI_CHILDREN", "8"}, {"PHP_LSAPI_CHILDREN", "9"}});
    CHECK(config.children == 9);
    CHECK(where(config, "children") == "PHP_LSAPI_CHILDREN in the environment");
}

TEST_CASE("no child of its own means a program that serves by itself, which is one") {
    for (const char* name : {"PHP_LSAPI_CHILDREN", "LSAPI_CHILDREN", "PHP_FCGI_CHILDREN"}) {
        CHECK(applied({{name, "0"}}).children == 1);
        CHECK(applied({{name, "1"}}).children == 1);
    }
}

TEST_CASE("the limit of requests is lsphp's variable, else php-cgi's; 0 and less is none") {
    CHECK(applied({{"PHP_FCGI_MAX_REQUESTS", "500"}}).max_requests == 500);
    CHECK(applied({{"PHP_FCGI_MAX_REQUESTS", "500"}, {"LSAPI_MAX_REQS", "600"}}).max_requests == 600);
    const Config config = applied({{"LSAPI_MAX_REQS", "600"}, {"PHP_LSAPI_MAX_REQUESTS", "700"}});
    CHECK(config.max_requests == 700);
    CHECK(where(config, "max-requests") == "PHP_LSAPI_MAX_REQUESTS in the environment");
    CHECK(applied({{"LSAPI_MAX_REQS", "0"}}).max_requests == 0);
    CHECK(applied({{"LSAPI_MAX_REQS", "-1"}}).max_requests == 0);
    CHECK(applied({{"LSAPI_MAX_REQS", "-1"}, {"PHP_FCGI_MAX_REQUESTS", "5"}}).max_requests == 0);
    CHECK(applied({{"LSAPI_MAX_REQS", "4294967295"}}).max_requests == 4294967295U);
}

TEST_CASE("the limit of a request's time is lsphp's variable, in seconds, however long") {
    CHECK(applied({{"LSAPI_MAX_PROCESS_TIME", "300"}}).request_timeout == 300s);
    CHECK(applied({{"LSAPI_MAX_PROCESS_TIME", "1000000"}}).request_timeout == 1000000s);
    CHECK(applied({{"LSAPI_MAX_PROCESS_TIME", "0"}}).request_timeout == 0s);
    CHECK(applied({{"LSAPI_MAX_PROCESS_TIME", "-3"}}).request_timeout == 0s);
}

TEST_CASE("what was set already stays, whatever the environment says") {
    const Environment nonsense{{"PHP_LSAPI_CHILDREN", "x"}, {"LSAPI_MAX_REQS", "0"}};
    CHECK(applied(nonsense, with_origin("children")).children == 3);
    CHECK(applied({{"LSAPI_MAX_REQS", "x"}}, with_origin("max-requests")).max_requests == 4);
    CHECK(applied({{"LSAPI_MAX_PROCESS_TIME", "x"}}, with_origin("request-timeout")).request_timeout == 5s);
}

TEST_CASE("a value that is no number is refused by name, with the option to give instead") {
    for (const char* bad : {"", "nonsense", "-3", "10001", "10 ", "99999999999999999999"}) {
        CAPTURE(bad);
        for (const std::string name : {"PHP_LSAPI_CHILDREN", "LSAPI_CHILDREN", "PHP_FCGI_CHILDREN"}) {
            check_refused({{name, bad}}, {name + " in the environment: '", "or give --children"});
        }
    }
    for (const char* bad : {"", "many", "-", "--3", "4294967296"}) {
        CAPTURE(bad);
        check_refused({{"LSAPI_MAX_REQS", bad}}, {"LSAPI_MAX_REQS in the environment", "--max-requests"});
    }
    check_refused({{"LSAPI_MAX_PROCESS_TIME", "30s"}},
                  {"LSAPI_MAX_PROCESS_TIME in the environment", "--request-timeout"});
}

TEST_CASE("cede ends with its parent where lsphp's own parent process would") {
    CHECK_FALSE(ends_with_parent({}));
    CHECK_FALSE(ends_with_parent({{"PHP_FCGI_CHILDREN", "10"}}));
    CHECK(ends_with_parent({{"PHP_LSAPI_CHILDREN", "10"}}));
    CHECK(ends_with_parent({{"LSAPI_CHILDREN", "10"}}));
    CHECK_FALSE(ends_with_parent({{"LSAPI_CHILDREN", "10"}, {"LSAPI_PPID_NO_CHECK", ""}}));
    CHECK(ends_with_parent({{"LSAPI_CHILDREN", "10"}, {"LSAPI_MAX_BUSY_WORKER", "-1"}}));
    CHECK_FALSE(ends_with_parent({{"LSAPI_CHILDREN", "10"}, {"LSAPI_MAX_BUSY_WORKER", "0"}}));
    CHECK_FALSE(ends_with_parent({{"LSAPI_CHILDREN", "10"}, {"LSAPI_MAX_BUSY_WORKER", "5"}}));
}
