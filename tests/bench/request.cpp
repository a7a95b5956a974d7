// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/request.h"

#include <array>
#include <stdexcept>

#include "protocol/fastcgi_writer.h"

namespace cede::bench {

namespace fcgi = protocol::fastcgi;

std::vector<std::byte> build_request(const std::string& script, bool keep_connection) {
    const std::size_t slash = script.rfind('/');
    const std::string name = slash == std::string::npos ? script : script.substr(slash);
    const std::string root = slash == std::string::npos ? "" : script.substr(0, slash);
    const std::array<fcgi::NameValue, 19> pairs{{
        {"QUERY_STRING", ""},
        {"REQUEST_METHOD", "GET"},
        {"CONTENT_TYPE", ""},
        {"CONTENT_LENGTH", ""},
        {"SCRIPT_NAME", name},
        {"REQUEST_URI", name},
        {"DOCUMENT_URI", name},
        {"DOCUMENT_ROOT", root},
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
    const auto padding = static_cast<std::uint8_t>((8 - content % 8) % 8);
    std::vector<std::byte> bytes(content + 512);
    std::size_t size = 0;
    const auto append = [&](auto&& write) {
        const fcgi::Written written = write(protocol::MutableBytes{bytes}.subspan(size));
        if (!written || content > fcgi::max_content) {
            throw std::invalid_argument(
                "--script " + script.substr(0, 40) +
                "...: the name does not fit into one PARAMS record; use a shorter path");
        }
        size += *written;
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

}  // namespace cede::bench
