// SPDX-License-Identifier: Apache-2.0
#include "pm/control_request.h"

#include <string>

#include <doctest/doctest.h>

using namespace cede::pm;
using Verb = Command::Verb;

TEST_CASE("every request that we send is understood as it was meant") {
    const ControlRequest requests[] = {{Verb::status, false, 0},   {Verb::reload, false, 0},
                                       {Verb::stop, false, 0},     {Verb::stop, true, 0},
                                       {Verb::upgrade, false, 0},  {Verb::reopen, false, 0},
                                       {Verb::children, false, 1}, {Verb::children, false, 10000}};
    for (const ControlRequest& request : requests) {
        const HttpRequest http = to_http(request);
        CAPTURE(http.target);
        CHECK(from_http(http.method, http.target, http.body) == request);
    }
}

TEST_CASE("an empty body and an empty object leave everything as it is") {
    CHECK(from_http("POST", "/stop", "{}") == ControlRequest{Verb::stop, false, 0});
    CHECK(from_http("POST", "/stop", "") == ControlRequest{Verb::stop, false, 0});
    CHECK(from_http("POST", "/reload", "{}") == ControlRequest{Verb::reload, false, 0});
}

TEST_CASE("what is not understood is refused with a reason") {
    struct Case {
        const char* method;
        const char* target;
        std::string body;
        unsigned status;
    };
    const Case cases[] = {
        {"GET", "/", "", 404},
        {"GET", "status", "", 404},
        {"GET", "", "", 404},
        {"GET", "/status/", "", 404},
        {"GET", "/status?x=1", "", 404},
        {"POST", "/status", "", 405},
        {"GET", "/stop", "", 405},
        {"post", "/stop", "", 405},
        {"POST", "/stop", "null", 422},
        {"POST", "/stop", "{", 422},
        {"POST", "/stop", std::string(2000, '['), 422},
        {"POST", "/stop", R"({"fast":null})", 422},
        {"POST", "/stop", R"({"slow":true})", 422},
        {"POST", "/reload", R"({"fast":true})", 422},
        {"POST", "/reload", R"({"":true})", 422},
        {"POST", "/children", "", 422},
        {"POST", "/children", R"({"children":"5"})", 422},
    };
    for (const Case& one : cases) {
        CAPTURE(one.target);
        CAPTURE(one.body);
        const auto request = from_http(one.method, one.target, one.body);
        REQUIRE_FALSE(request.has_value());
        CHECK(request.error().status == one.status);
        CHECK_FALSE(request.error().text.empty());
        CHECK(request.error().text.size() < 200);
    }
    CHECK(from_http("GET", "/stop", "").error().allow == "POST");
    CHECK(from_http("POST", "/status", "").error().allow == "GET");
}
