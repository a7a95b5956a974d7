// SPDX-License-Identifier: Apache-2.0
#include "pm/address.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/un.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/listening.h"

using namespace cede::pm;
using namespace std::string_view_literals;
using Form = cede::pm::Address::Form;

TEST_CASE("every form of address is understood and has one spelling") {
    struct Row {
        std::string text;
        Form form;
        std::string name;
    };
    const std::vector<Row> rows{
        {"127.0.0.1:9000", Form::tcp4, "127.0.0.1:9000"},
        {"0.0.0.0:1", Form::tcp4, "0.0.0.0:1"},
        {"127.0.0.1:0", Form::tcp4, "127.0.0.1:0"},
        {"127.0.0.1:065535", Form::tcp4, "127.0.0.1:65535"},
        {"[::1]:9000", Form::tcp6, "[::1]:9000"},
        {"[0:0:0:0:0:0:0:1]:9000", Form::tcp6, "[::1]:9000"},
        {"[::]:9000", Form::tcp6, "[::]:9000"},
        {"[fe80::1%lo]:9000", Form::tcp6, "[fe80::1%lo]:9000"},
        {"*:9000", Form::any, "*:9000"},
        {"localhost:9000", Form::localhost, "localhost:9000"},
        {"/run/x.sock", Form::unix_path, "/run/x.sock"},
        {"unix:/run/x.sock", Form::unix_path, "/run/x.sock"},
        {"unix:///run/x.sock", Form::unix_path, "/run/x.sock"},
        {"uds:///run/x.sock", Form::unix_path, "/run/x.sock"},
        {"uds://run/x.sock", Form::unix_path, "/run/x.sock"},
        {"UDS://tmp/lshttpd/lsphp.sock", Form::unix_path, "/tmp/lshttpd/lsphp.sock"},
        {"/run/with:colon", Form::unix_path, "/run/with:colon"},
        {"/" + std::string(106, 'x'), Form::unix_path, "/" + std::string(106, 'x')},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto address = parse_address(row.text);
        REQUIRE(address.has_value());
        CHECK(address->form == row.form);
        CHECK(address->name() == row.name);
    }
}

TEST_CASE("what is no address is refused with the reason and a remedy") {
    struct Row {
        std::string_view text;
        std::string_view part;
    };
    const std::string long_path = "/" + std::string(107, 'x');
    const std::vector<Row> rows{
        {"", "is not an address"},
        {"9000", "127.0.0.1:9000"},
        {"9000", "*:9000"},
        {":9000", "is not an address"},
        {"127.0.0.1", "is not an address"},
        {"[::1]", "is not an address"},
        {"127.0.0.1:", "bad port"},
        {"127.0.0.1:65536", "bad port"},
        {"127.0.0.1:-1", "bad port"},
        {"127.0.0.1:http", "bad port"},
        {"127.0.0.1:90 ", "bad port"},
        {"127.1:9000", "no numeric address"},
        {"256.0.0.1:9000", "no numeric address"},
        {"1:9000", "no numeric address"},
        {"example.org:9000", "no name server"},
        {"::1:9000", "brackets"},
        {"[::1:9000", "brackets"},
        {"[::g]:9000", "IPv6"},
        {"[]:9000", "IPv6"},
        {"[127.0.0.1]:9000", "IPv6"},
        {"[fe80::1%nosuchif0]:9000", "IPv6"},
        {"**:9000", "no numeric address"},
        {"x.sock", "is not an address"},
        {"run/x.sock", "full path"},
        {"./x.sock", "full path"},
        {"unix:", "full path"},
        {"unix:x.sock", "full path"},
        {"uds:/run/x.sock", "full path"},
        {"uds://", "ends with '/'"},
        {"@abstract", "is not an address"},
        {"/run/", "ends with '/'"},
        {"/", "ends with '/'"},
        {"/run/a\0b"sv, "NUL"},
        {"127.0.0.1\0:9000"sv, "NUL"},
        {long_path, "107"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto address = parse_address(row.text);
        REQUIRE_FALSE(address.has_value());
        CAPTURE(address.error().message);
        CHECK(address.error().message.find(row.part) != std::string::npos);
        CHECK(address.error().exit_status == Error::usage);
    }
}

TEST_CASE("a bound socket's address is printed as it would be written") {
    using namespace cede::tests;
    CHECK(printable(loopback4(9000).storage, loopback4().length) == "127.0.0.1:9000");
    CHECK(printable(loopback6(9000).storage, loopback6().length) == "[::1]:9000");
    CHECK(printable(unix_address("/run/x").storage, unix_address("/run/x").length) == "/run/x");
    constexpr socklen_t prefix = offsetof(sockaddr_un, sun_path);
    CHECK(printable(unix_address("").storage, prefix) == "unix:(unnamed)");
    CHECK(printable(unix_address("/run/xyz").storage, prefix + 6) == "/run/x");
    sockaddr_storage abstract = unix_address("").storage;
    std::memcpy(reinterpret_cast<char*>(&abstract) + prefix + 1, "name", 4);
    CHECK(printable(abstract, prefix + 5) == "unix:@name");
    CHECK(printable(sockaddr_storage{}, 0) == "(address family 0)");
    CHECK(printable(loopback4().storage, 2) == "(address family 2)");
}
