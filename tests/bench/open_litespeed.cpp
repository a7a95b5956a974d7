// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/open_litespeed.h"

#include <array>

#include "protocol/lsapi_writer.h"
#include "tests/bench/lsapi_answer.h"
#include "tests/bench/script.h"

namespace cede::bench {

namespace lsapi = protocol::lsapi;

std::vector<std::byte> OpenLitespeed::build_request(const std::string& script,
                                                    bool /*keep_connection*/) const {
    const Script page{script};
    const std::array<lsapi::NameValue, 14> env{{
        {"DOCUMENT_ROOT", page.root},
        {"REMOTE_ADDR", "127.0.0.1"},
        {"REMOTE_PORT", "40000"},
        {"SERVER_ADDR", "127.0.0.1"},
        {"SERVER_NAME", "localhost"},
        {"SERVER_PORT", "80"},
        {"REQUEST_URI", page.name},
        {"LSWS_EDITION", "Openlitespeed 1.9.1"},
        {"SCRIPT_FILENAME", script},
        {"QUERY_STRING", ""},
        {"SCRIPT_NAME", page.name},
        {"SERVER_PROTOCOL", "HTTP/1.1"},
        {"SERVER_SOFTWARE", "LiteSpeed"},
        {"REQUEST_METHOD", "GET"},
    }};
    const std::array<lsapi::NameValue, 2> headers{{{"Host", "localhost"}, {"Accept", "*/*"}}};
    const std::string line = "GET " + page.name + " HTTP/1.1";
    const lsapi::Request request{.special_env = {}, .env = env, .request_line = line, .headers = headers};
    std::vector<std::byte> bytes(lsapi::max_request_packet);
    const lsapi::Written written = lsapi::write_begin_request(bytes, request);
    if (!written) {
        refuse_script(script, "one LSAPI packet");
    }
    bytes.resize(*written);
    return bytes;
}

std::unique_ptr<Answer> OpenLitespeed::new_answer() const {
    return std::make_unique<LsapiAnswer>();
}

Remedy OpenLitespeed::remedy(const Loss& loss) const noexcept {
    if (loss.earlier + 1 >= most_attempts) {
        return Remedy::unavailable;
    }
    const bool in_place = loss.connected && loss.reused && !loss.acknowledged;
    return in_place && (!loss.others_are_idle || loss.earlier == 0) ? Remedy::reconnect : Remedy::another;
}

protocol::Bytes OpenLitespeed::farewell() const noexcept {
    static constexpr auto packet = lsapi::bare_packet(lsapi::PacketType::abort_request);
    return packet;
}

}  // namespace cede::bench
