// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/nginx.h"

#include <array>

#include "protocol/fastcgi_writer.h"
#include "tests/bench/fastcgi_answer.h"
#include "tests/bench/script.h"

namespace cede::bench {

namespace fcgi = protocol::fastcgi;

std::vector<std::byte> Nginx::build_request(const std::string& script, bool keep_connection) const {
    const Script page{script};
    const std::array<fcgi::NameValue, 19> pairs{{
        {"QUERY_STRING", ""},
        {"REQUEST_METHOD", "GET"},
        {"CONTENT_TYPE", ""},
        {"CONTENT_LENGTH", ""},
        {"SCRIPT_NAME", page.name},
        {"REQUEST_URI", page.name},
        {"DOCUMENT_URI", page.name},
        {"DOCUMENT_ROOT", page.root},
        {"SERVER_PROTOCOL", "HTTP/1.1"},
        {"GATEWAY_INTERFACE", "CGI/1.1"},
        {"REMOTE_ADDR", "127.0.0.1"},
        {"REMOTE_PORT", "40000"},
        {"SERVER_ADDR", "127.0.0.1"},
        {"SERVER_PORT", "80"},
        {"SERVER_NAME", "localhost"},
        {"REDIRECT_STATUS", "200"},
        {"SCRIPT_FILENAME", script},
        {"HTTP_HOST", "localhost"},
        {"HTTP_ACCEPT", "*/*"},
    }};
    const std::uint64_t content = fcgi::encoded_size(pairs);
    if (content > fcgi::max_content) {
        refuse_script(script, "one PARAMS record");
    }
    const auto padding = static_cast<std::uint8_t>((8 - content % 8) % 8);
    std::vector<std::byte> bytes(content + 512);
    std::size_t size = 0;
    const auto append = [&](auto&& write) {
        size += write(protocol::MutableBytes{bytes}.subspan(size)).value();
    };
    const std::uint8_t flags = keep_connection ? fcgi::keep_conn_flag : std::uint8_t{0};
    append(
        [&](auto out) { return fcgi::write_begin_request(out, request_id, fcgi::Role::responder, flags); });
    append([&](auto out) { return fcgi::write_params(out, request_id, pairs, {.padding = padding}); });
    append([](auto out) { return fcgi::write_stream_end(out, fcgi::RecordType::params, request_id); });
    append([](auto out) { return fcgi::write_stream_end(out, fcgi::RecordType::stdin_stream, request_id); });
    bytes.resize(size);
    return bytes;
}

std::unique_ptr<Answer> Nginx::new_answer() const {
    return std::make_unique<FastcgiAnswer>();
}

Remedy Nginx::remedy(const Loss& loss) const noexcept {
    return loss.reused && loss.untouched && loss.earlier == 0 ? Remedy::reconnect : Remedy::give_up;
}

}  // namespace cede::bench
