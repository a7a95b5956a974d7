// SPDX-License-Identifier: Apache-2.0
// Feeds any bytes, cut where the first byte says, to the readers and scanners, and checks what they promise:
// what is handed out lies inside the message, a limit is a limit, and the way the bytes are cut changes
// nothing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "protocol/lsapi_request_reader.h"
#include "protocol/lsapi_response_reader.h"
#include "protocol/lsapi_scanner.h"

using namespace cede::protocol;
using namespace cede::protocol::lsapi;

namespace {

constexpr std::size_t head_room = 300;
constexpr std::uint64_t most_bytes = 1000;

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

struct Seen {
    std::uint64_t bytes = 0, lines = 0, line_bytes = 0, heads = 0, acknowledged = 0, closes = 0;
    std::uint64_t ended = 0;
    bool in_step = true, close_announced = false;
    std::int32_t status = 0, pid = 0;
    Outcome response = Outcome::need_more;
    bool operator==(const Seen&) const = default;
};

void count(ResponseEvent event, const ResponseReader& reader, Seen& seen) {
    seen.acknowledged += event == ResponseEvent::received ? 1U : 0U;
    seen.closes += event == ResponseEvent::conn_close ? 1U : 0U;
    if (event == ResponseEvent::body_bytes || event == ResponseEvent::stderr_bytes) {
        require(!reader.content().empty());
        seen.bytes += reader.content().size();
    } else if (event == ResponseEvent::head) {
        ++seen.heads;
        for (LineCursor lines = reader.lines(); const auto line = lines.next();) {
            ++seen.lines;
            seen.line_bytes += line->size();
        }
    }
}

Seen read(Bytes all, std::size_t piece_size) {
    std::array<std::byte, head_room> storage;
    ResponseReader reader{storage, most_bytes};
    ResponseScanner answers;
    Seen seen;
    while (!all.empty()) {
        Bytes piece = take(all, piece_size);
        answers.feed(piece);
        for (ResponseEvent event; (event = reader.next(piece)) != ResponseEvent::need_more &&
                                  event != ResponseEvent::end && event != ResponseEvent::refused;) {
            count(event, reader, seen);
        }
    }
    require(seen.bytes <= most_bytes && seen.line_bytes <= seen.heads * head_room);
    seen.ended = answers.ended();
    seen.in_step = !answers.out_of_step();
    seen.close_announced = answers.close_announced();
    seen.status = reader.status();
    seen.pid = reader.pid();
    seen.response = reader.outcome();
    return seen;
}

void require_inside(std::string_view part, Bytes all) {
    const char* const begin = reinterpret_cast<const char*>(all.data());
    require(part.empty() || (part.data() >= begin && part.data() + part.size() <= begin + all.size()));
}

void read_request(Bytes all) {
    RequestReader reader;
    if (reader.read(all) != Outcome::done) {
        return;
    }
    const Bytes packet = all.first(reader.size());
    for (EnvCursor list : {reader.env(), reader.special_env()}) {
        while (const auto entry = list.next()) {
            require_inside(entry->name, packet);
            require_inside(entry->value, packet);
        }
    }
    for (std::size_t i = 0; i < indexed_header_names.size(); ++i) {
        require_inside(reader.header(IndexedHeader{static_cast<std::uint8_t>(i)}).value_or(""), packet);
    }
    for (std::size_t i = 0; i < reader.unknown_headers(); ++i) {
        require_inside(reader.unknown_header(i).name, packet);
        require_inside(reader.unknown_header(i).value, packet);
    }
    for (const std::string_view text :
         {reader.script_file(), reader.script_name(), reader.query_string(), reader.request_method()}) {
        require_inside(text, packet);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const Bytes message = std::as_bytes(std::span{data + 1, size - 1});
    require(read(message, 1 + data[0]) == read(message, message.size() + 1));
    read_request(message);
    return 0;
}
