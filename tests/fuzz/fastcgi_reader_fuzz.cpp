// SPDX-License-Identifier: Apache-2.0
// Feeds any bytes, cut where the first byte says, to the three readers, and checks what they promise: pieces
// lie inside the input, a limit is a limit, and the way the bytes are cut changes nothing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "protocol/fastcgi_reader.h"

using namespace cede::protocol;
using namespace cede::protocol::fastcgi;

namespace {

constexpr std::size_t pair_room = 300;
constexpr NameValueLimits limits{.stream_bytes = 4096, .pairs = 50};

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

struct Seen {
    std::uint64_t records = 0, contents = 0, pairs = 0, pair_bytes = 0, output = 0;
    Outcome params = Outcome::need_more, response = Outcome::need_more;
    bool operator==(const Seen&) const = default;
};

Seen read(Bytes all, std::size_t piece_size) {
    std::array<std::byte, pair_room> storage;
    RecordReader records;
    NameValueReader pairs{storage, limits};
    ResponseReader response{1, 10'000};
    Seen seen;
    while (!all.empty()) {
        Bytes piece = all.first(piece_size < all.size() ? piece_size : all.size());
        all = all.subspan(piece.size());
        Bytes answer = piece;
        for (RecordEvent event; (event = records.next(piece)) != RecordEvent::need_more;) {
            seen.records += event == RecordEvent::end ? 1 : 0;
            if (event == RecordEvent::content) {
                require(!records.content().empty());
                seen.contents += records.content().size();
                Bytes content = records.content();
                while (pairs.next(content) == Outcome::done) {
                    ++seen.pairs;
                    seen.pair_bytes += pairs.name().size() + pairs.value().size();
                }
            }
        }
        require(piece.empty());
        for (ResponseEvent event; (event = response.next(answer)) == ResponseEvent::stdout_bytes ||
                                  event == ResponseEvent::stderr_bytes;) {
            seen.output += response.content().size();
        }
    }
    seen.params = pairs.finish();
    seen.response = response.outcome();
    require(seen.pairs <= limits.pairs && seen.pair_bytes <= limits.stream_bytes && seen.output <= 10'000);
    return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const Bytes message = std::as_bytes(std::span{data + 1, size - 1});
    require(read(message, 1 + data[0]) == read(message, message.size() + 1));
    return 0;
}
