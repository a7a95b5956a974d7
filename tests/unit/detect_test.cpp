// SPDX-License-Identifier: Apache-2.0
#include "protocol/detect.h"

#include <doctest/doctest.h>

#include "tests/support/packets.h"
#include "tests/support/records.h"

using cede::protocol::detect;
using cede::protocol::Protocol;

namespace {

Protocol of(const std::string& message) {
    return detect(std::byte{static_cast<unsigned char>(message[0])});
}

}  // namespace

TEST_CASE("the first byte of a request tells its protocol") {
    CHECK(of(cede::tests::begin_record(true)) == Protocol::fastcgi);
    CHECK(of(cede::tests::record(9, "", 0, 0)) == Protocol::fastcgi);
    CHECK(of(cede::tests::example_request()) == Protocol::lsapi);
    CHECK(of(cede::tests::packet(2)) == Protocol::lsapi);
    CHECK(of("GET / HTTP/1.1\r\n\r\n") == Protocol::unknown);
}

TEST_CASE("every other first byte is of no protocol that we know") {
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool known = detect(std::byte{static_cast<unsigned char>(byte)}) != Protocol::unknown;
        CHECK(known == (byte == 1 || byte == 'L'));
    }
}

TEST_CASE("each protocol has a name") {
    CHECK(name_of(Protocol::fastcgi) == "fastcgi");
    CHECK(name_of(Protocol::lsapi) == "lsapi");
    CHECK(name_of(Protocol::unknown) == "unknown");
}
