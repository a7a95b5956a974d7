// SPDX-License-Identifier: Apache-2.0
// Behaviour of PHP: fcgi_read_request and fcgi_read in php-src, main/fastcgi.c.
#include "protocol/fastcgi_request_head.h"

#include <algorithm>

#include "protocol/fastcgi.h"
#include "protocol/variable_name.h"

namespace cede::protocol::fastcgi {

namespace {

constexpr std::size_t largest_for_php = 65535;  // FCGI_MAX_LENGTH: of content and padding together

// A record of which the header is there, and maybe not all of the rest.
struct Record {
    RecordHeader header;
    std::size_t content_at = 0;
    std::size_t end = 0;  // behind its padding, which may be behind what is there

    [[nodiscard]] bool is(RecordType type) const noexcept { return header.type == type; }
    [[nodiscard]] bool empty() const noexcept { return header.content_length == 0; }
    [[nodiscard]] bool too_large() const noexcept { return end - content_at > largest_for_php; }
};

// done, need_more or bad_version.
Outcome read_record(Bytes bytes, std::size_t at, Record& record) noexcept {
    if (at >= bytes.size()) {
        return Outcome::need_more;
    }
    if (get_u8(bytes, at) < version_1) {
        return Outcome::bad_version;
    }
    if (bytes.size() - at < header_size) {
        return Outcome::need_more;
    }
    record.header = decode_header(bytes.subspan(at));
    record.content_at = at + header_size;
    record.end = record.content_at + record.header.content_length + record.header.padding_length;
    return Outcome::done;
}

// The first record of the request itself. Of the empty STDIN records in front PHP skips no padding.
Outcome read_first(Bytes bytes, Record& record) noexcept {
    Outcome outcome = read_record(bytes, 0, record);
    while (outcome == Outcome::done && record.is(RecordType::stdin_stream) && record.empty()) {
        outcome = read_record(bytes, record.content_at, record);
    }
    return outcome;
}

Outcome judge_first(Bytes bytes, const Record& record) noexcept {
    const bool begin = record.is(RecordType::begin_request);
    if (!begin && !record.is(RecordType::get_values)) {
        return Outcome::unexpected_type;
    }
    if (record.too_large()) {
        return Outcome::bad_packet_size;
    }
    if (begin && record.header.content_length != begin_request_body_size) {
        return Outcome::bad_body_size;
    }
    if (record.end > bytes.size()) {
        return Outcome::need_more;
    }
    const Role role{begin ? get_u16_be(bytes, record.content_at) : std::uint16_t{1}};
    const bool known = role == Role::responder || role == Role::authorizer || role == Role::filter;
    return known ? Outcome::done : Outcome::unknown_role;
}

// Passes over the records of PARAMS. done: `at` is where the body begins.
Outcome pass_params(Bytes bytes, std::size_t& at) noexcept {
    for (;;) {
        Record record;
        if (const Outcome outcome = read_record(bytes, at, record); outcome != Outcome::done) {
            return outcome;
        }
        if (!record.is(RecordType::params)) {
            return Outcome::done;
        }
        if (!record.empty() && record.too_large()) {
            return Outcome::bad_packet_size;
        }
        if (record.end > bytes.size()) {
            return Outcome::need_more;
        }
        at = record.end;
        if (record.empty()) {
            return Outcome::done;
        }
    }
}

void measure_body(Bytes bytes, RequestHead& head) noexcept {
    std::size_t at = head.head_size;
    Record record;
    for (;;) {
        const Outcome outcome = read_record(bytes, at, record);
        if (outcome == Outcome::need_more) {
            return;
        }
        if (outcome != Outcome::done || !record.is(RecordType::stdin_stream)) {
            break;
        }
        head.body_here +=
            std::min(std::size_t{record.header.content_length}, bytes.size() - record.content_at);
        if (record.end > bytes.size()) {
            return;
        }
        at = record.end;
        if (record.empty()) {
            break;
        }
    }
    head.request_complete = true;
    head.request_size = at;
}

// Walks over the contents of the PARAMS records as over one stream.
class Params {
  public:
    // `head` begins with a request.
    explicit Params(Bytes head) noexcept : head_{head} {
        Record begin;
        at_ = read_first(head, begin) == Outcome::done ? begin.end : head.size();
    }
    // The next bytes that lie together, at most so many; none at the end of the stream.
    Bytes take(std::size_t at_most) noexcept {
        while (left_ == 0) {
            Record record;
            at_ += padding_;
            padding_ = 0;
            if (read_record(head_, at_, record) != Outcome::done || !record.is(RecordType::params) ||
                record.empty() || record.end > head_.size()) {
                at_ = head_.size();
                return {};
            }
            at_ = record.content_at;
            left_ = record.header.content_length;
            padding_ = record.header.padding_length;
        }
        const Bytes piece = head_.subspan(at_, std::min(left_, at_most));
        at_ += piece.size();
        left_ -= piece.size();
        return piece;
    }
    // Calls `use` with all pieces of the next `size` bytes. False at the end of the stream.
    template <typename Use>
    bool pass(std::size_t size, Use&& use) noexcept {
        while (size > 0) {
            const Bytes piece = take(size);
            if (piece.empty()) {
                return false;
            }
            use(piece);
            size -= piece.size();
        }
        return true;
    }
    bool skip(std::size_t size) noexcept {
        return pass(size, [](Bytes) noexcept {});
    }
    bool read_lengths(std::size_t& name, std::size_t& value) noexcept {
        return read_length(name) && read_length(value);
    }

  private:
    bool read_length(std::size_t& length) noexcept {
        constexpr std::size_t four_bytes = 0x80;
        const auto add = [&length](Bytes piece) noexcept {
            for (const std::byte byte : piece) {
                length = length << 8U | std::to_integer<std::size_t>(byte);
            }
        };
        length = 0;
        if (!pass(1, add)) {
            return false;
        }
        if (length < four_bytes) {
            return true;
        }
        length -= four_bytes;
        return pass(3, add);
    }

    Bytes head_;
    std::size_t at_ = 0;
    std::size_t left_ = 0;  // of the content of the record at hand
    std::size_t padding_ = 0;
};

// Takes the name of a pair off the stream.
bool pass_name(Params& params, std::size_t size, std::string_view wanted, bool& same) noexcept {
    std::size_t at = 0;
    same = size == wanted.size();
    return params.pass(size, [&](Bytes piece) noexcept {
        same = same && std::ranges::equal(piece, std::as_bytes(std::span{wanted}.subspan(at, piece.size())));
        at += piece.size();
    });
}

void hide_variable(MutableBytes head, std::string_view name) noexcept {
    Params params{head};
    std::size_t name_size = 0;
    std::size_t value_size = 0;
    while (params.read_lengths(name_size, value_size)) {
        SpelledAs spelled{name};
        std::ptrdiff_t first = -1;
        const bool whole = params.pass(name_size, [&](Bytes piece) noexcept {
            first = first < 0 ? piece.data() - head.data() : first;
            for (const std::byte byte : piece) {
                spelled.feed(static_cast<char>(byte));
            }
        });
        if (whole && spelled.same()) {
            head.data()[first] = std::byte{0};
        }
        if (!params.skip(value_size)) {
            return;
        }
    }
}

constexpr std::size_t length_size(std::size_t length) noexcept {
    return length < 0x80 ? 1 : 4;
}

// A PARAMS record of one pair. `out` is as long as that.
void put_params(MutableBytes out, std::uint16_t id, std::string_view name, std::string_view value) noexcept {
    put_header(out, RecordType::params, id, out.size() - header_size, 0);
    std::size_t at = header_size;
    for (const std::string_view text : {name, value}) {
        if (length_size(text.size()) == 1) {
            put_u8(out, at, static_cast<std::uint8_t>(text.size()));
        } else {
            put_u32_be(out, at, static_cast<std::uint32_t>(text.size()) | 0x80000000U);
        }
        at += length_size(text.size());
    }
    for (const std::string_view text : {name, value}) {
        std::ranges::copy(std::as_bytes(std::span{text}), out.data() + at);
        at += text.size();
    }
}

}  // namespace

RequestHead read_request_head(Bytes bytes) noexcept {
    RequestHead head;
    if (!bytes.empty() && detect(bytes.front()) == Protocol::lsapi) {
        head.outcome = Outcome::bad_version;
        return head;
    }
    Record first;
    head.outcome = read_first(bytes, first);
    if (head.outcome == Outcome::done) {
        head.outcome = judge_first(bytes, first);
    }
    if (head.outcome != Outcome::done) {
        return head;
    }
    std::size_t at = first.end;
    head.id = first.header.request_id;
    if (first.is(RecordType::get_values)) {
        head.management = true;
        head.keep_connection = true;
        head.request_complete = true;
        head.head_size = head.request_size = at;
        return head;
    }
    head.keep_connection = (get_u8(bytes, first.content_at + 2) & keep_conn_flag) != 0;
    head.outcome = pass_params(bytes, at);
    if (head.outcome == Outcome::done) {
        head.head_size = at;
        measure_body(bytes, head);
    }
    return head;
}

std::optional<std::size_t> find_variable(Bytes head, std::string_view name, MutableBytes value) noexcept {
    std::optional<std::size_t> found;
    Params params{head};
    std::size_t name_size = 0;
    std::size_t value_size = 0;
    bool same = false;
    while (params.read_lengths(name_size, value_size) && pass_name(params, name_size, name, same)) {
        if (!same) {
            if (!params.skip(value_size)) {
                break;
            }
            continue;
        }
        const bool fits = value_size <= value.size();
        std::size_t filled = 0;
        const bool whole = params.pass(value_size, [&](Bytes piece) noexcept {
            if (fits) {
                fill(value, filled, value_size, piece);
            }
        });
        found = whole && fits ? std::optional{value_size} : std::nullopt;
    }
    return found;
}

std::optional<std::size_t> add_variable(MutableBytes buffer, std::size_t used, std::size_t head_size,
                                        std::string_view name, std::string_view value) noexcept {
    const RequestHead read = read_request_head(buffer.first(used));
    const std::size_t most = std::min(largest_for_php, buffer.size() - used);
    if (name.size() > most || value.size() > most) {
        return std::nullopt;
    }
    const std::size_t content =
        length_size(name.size()) + length_size(value.size()) + name.size() + value.size();
    if (read.outcome != Outcome::done || read.head_size != head_size || read.management ||
        content > largest_for_php || header_size + content > buffer.size() - used) {
        return std::nullopt;
    }
    hide_variable(buffer.first(head_size), name);
    // In front of all others: what is wrong at the end of theirs then concerns this one as little as it does
    // PHP, which reads record by record.
    Record begin;
    if (read_first(buffer.first(head_size), begin) != Outcome::done) {
        return std::nullopt;
    }
    const std::size_t size = header_size + content;
    const MutableBytes moved = buffer.subspan(begin.end, used - begin.end);
    std::copy_backward(moved.begin(), moved.end(), moved.end() + static_cast<std::ptrdiff_t>(size));
    put_params(buffer.subspan(begin.end, size), read.id, name, value);
    return used + size;
}

}  // namespace cede::protocol::fastcgi
