// SPDX-License-Identifier: Apache-2.0
#include "pm/lsapi_environment.h"

#include <set>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;
using Names = std::vector<std::string_view>;

TEST_CASE("every variable of lsphp has one fate, and a name that is none of them has none") {
    std::set<std::string_view> seen;
    for (const LsapiVariable& variable : lsapi_variables()) {
        CAPTURE(variable.name);
        CHECK(seen.insert(variable.name).second);
        CHECK(lsapi_fate(variable.name) == variable.fate);
    }
    for (const char* other : {"", "LSAPI_", "LSAPI_CHILDRE", "LSAPI_CHILDREN2", "PATH", "PHPRC", "LSPHPR"}) {
        CAPTURE(other);
        CHECK_FALSE(lsapi_fate(other).has_value());
    }
}

TEST_CASE("what switches prefork on, or a child's end by itself, is never lsphp's to see") {
    for (const char* name : {"PHP_LSAPI_CHILDREN", "LSAPI_CHILDREN", "LSAPI_MAX_REQS",
                             "PHP_LSAPI_MAX_REQUESTS", "LSAPI_PPID_NO_CHECK", "LSAPI_MAX_BUSY_WORKER",
                             "LSAPI_MAX_IDLE", "LSAPI_KEEP_LISTEN", "LSAPI_AVOID_FORK", "LSAPI_ACCEPT_NOTIFY",
                             "LSAPI_INITIAL_START", "LSAPI_CRIU", "LSAPI_CRIU_IMAGE_PATH"}) {
        CAPTURE(name);
        CHECK(lsapi_fate(name).has_value());
        CHECK(lsapi_fate(name) != LsapiFate::handed_on);
    }
}

TEST_CASE("names that are set in vain are told once each, in the order of the environment") {
    const std::vector<const char*> own{"PATH=/bin",
                                       "LSAPI_PADDING=x",
                                       "PHP_LSAPI_CHILDREN=10",
                                       "LSAPI_AVOID_FORK=200M",
                                       "LSAPI_CRIU_USE_SHM=1",
                                       "LSAPI_PPID_NO_CHECK=1",
                                       "LSAPI_AVOID_FORK=1",
                                       "LSAPI_KEEP_LISTEN=2",
                                       "LSAPI_STDERR_LOG=/x",
                                       "LSAPI_MAX_IDLE"};
    CHECK(set_in_vain(own) ==
          Names{"LSAPI_AVOID_FORK", "LSAPI_CRIU_USE_SHM", "LSAPI_KEEP_LISTEN", "LSAPI_MAX_IDLE"});
    CHECK(set_in_vain({}).empty());
}
