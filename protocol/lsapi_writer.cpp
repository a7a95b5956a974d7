// SPDX-License-Identifier: Apache-2.0
#include "protocol/lsapi_writer.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <utility>

namespace cede::protocol::lsapi {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view separator = ": ";

// Puts one part behind the other. The space has been checked.
class Appender {
  public:
    Appender(MutableBytes out, std::endian order) noexcept : out_(out), order_(order) {}

    void put(Bytes bytes) noexcept {
        std::copy(bytes.begin(), bytes.end(), out_.data() + at_);
        at_ += bytes.size();
    }
    void put(std::string_view text) noexcept { put(std::as_bytes(std::span{text})); }
    void put_text(std::string_view text) noexcept {
        put(text);
        put_zeros(1);
    }
    void put_zeros(std::size_t count) noexcept {
        std::fill_n(out_.data() + at_, count, std::byte{0});
        at_ += count;
    }
    void put_env_lengths(const NameValue& entry) noexcept {
        put_u16_be(out_, at_, static_cast<std::uint16_t>(entry.name.size() + 1));
        put_u16_be(out_, at_ + 2, static_cast<std::uint16_t>(entry.value.size() + 1));
        at_ += env_lengths_size;
    }
    void put_length(std::size_t value) noexcept {
        put_u16(out_, at_, static_cast<std::uint16_t>(value), order_);
        at_ += 2;
    }
    void put_number(std::int32_t value) noexcept {
        put_i32(out_, at_, value, order_);
        at_ += 4;
    }
    void put_header(PacketType type, std::size_t length) noexcept {
        lsapi::put_header(out_.subspan(at_), type, static_cast<std::int32_t>(length), order_);
        at_ += packet_header_size;
    }
    // Into a place that was passed before.
    void set_number(std::size_t at, std::int32_t value) noexcept { put_i32(out_, at, value, order_); }
    void set_length(std::size_t at, std::size_t value) noexcept {
        put_u16(out_, at, static_cast<std::uint16_t>(value), order_);
    }
    [[nodiscard]] std::size_t written() const noexcept { return at_; }

  private:
    MutableBytes out_;
    std::size_t at_ = 0;
    std::endian order_;
};

constexpr char lower(char letter) noexcept {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool same_name(std::string_view left, std::string_view right) noexcept {
    return std::ranges::equal(left, right, {}, lower, lower);
}

// Says for one header after the other which place of the index it takes, if any.
class IndexPlaces {
  public:
    std::optional<std::size_t> take(std::string_view name) noexcept {
        for (std::size_t i = 0; i < indexed_header_names.size(); ++i) {
            if (same_name(name, indexed_header_names[i])) {
                const bool first = !taken_[i];
                taken_.set(i);
                return first ? std::optional{i} : std::nullopt;
            }
        }
        return std::nullopt;
    }

  private:
    std::bitset<indexed_header_names.size()> taken_;
};

std::uint64_t list_size(std::span<const NameValue> entries) noexcept {
    std::uint64_t size = env_terminator_size;
    for (const NameValue& entry : entries) {
        size += env_lengths_size + std::uint64_t{entry.name.size()} + 1 + entry.value.size() + 1;
    }
    return size;
}

std::uint64_t index_offset(const Request& request) noexcept {
    const std::uint64_t end = request_header_size + list_size(request.special_env) + list_size(request.env);
    return (end + header_index_align - 1) / header_index_align * header_index_align;
}

std::size_t count_unknown(std::span<const NameValue> headers) noexcept {
    IndexPlaces places;
    return static_cast<std::size_t>(
        std::ranges::count_if(headers, [&](const NameValue& header) { return !places.take(header.name); }));
}

std::uint64_t block_size(const Request& request, RequestLayout layout) noexcept {
    std::uint64_t size = layout.leading_zeros + request.request_line.size() + 2 * line_end.size();
    for (const NameValue& header : request.headers) {
        size += std::uint64_t{header.name.size()} + separator.size() + header.value.size() + line_end.size();
    }
    return size;
}

Outcome check(const Request& request) noexcept {
    for (const auto list : {request.special_env, request.env}) {
        if (list.size() > static_cast<std::size_t>(max_env_entries)) {
            return Outcome::too_many_pairs;
        }
        if (std::ranges::any_of(list, [](const NameValue& entry) {
                return entry.name.size() > max_env_name || entry.value.size() > max_env_value;
            })) {
            return Outcome::name_value_too_large;
        }
    }
    return Outcome::done;
}

void put_list(Appender& to, std::span<const NameValue> entries) noexcept {
    constexpr std::array<std::pair<std::string_view, std::size_t>, 4> with_offset{
        {{"SCRIPT_FILENAME", script_file_at},
         {"SCRIPT_NAME", script_name_at},
         {"QUERY_STRING", query_string_at},
         {"REQUEST_METHOD", request_method_at}}};
    for (const NameValue& entry : entries) {
        to.put_env_lengths(entry);
        to.put_text(entry.name);
        for (const auto& [name, at] : with_offset) {
            if (entry.name == name) {
                to.set_number(at, static_cast<std::int32_t>(to.written()));
            }
        }
        to.put_text(entry.value);
    }
    to.put_zeros(env_terminator_size);
}

void put_fixed_header(Appender& to, const Request& request, std::size_t size, std::size_t block) noexcept {
    to.put_header(PacketType::begin_request, size);
    to.put_zeros(request_header_size - packet_header_size);
    to.set_number(http_header_length_at, static_cast<std::int32_t>(block));
    to.set_number(body_length_at, request.body_length);
    to.set_number(unknown_headers_at, static_cast<std::int32_t>(count_unknown(request.headers)));
    to.set_number(env_count_at, static_cast<std::int32_t>(request.env.size()));
    to.set_number(special_env_count_at, static_cast<std::int32_t>(request.special_env.size()));
}

// The index, the unknown headers and, into them, where each value will stand in the block.
void put_index(Appender& to, const Request& request, RequestLayout layout) noexcept {
    const std::size_t index_at = to.written();
    to.put_zeros(header_index_size);
    IndexPlaces places;
    std::size_t name_at = layout.leading_zeros + request.request_line.size() + line_end.size();
    for (const NameValue& header : request.headers) {
        const std::size_t value_at = name_at + header.name.size() + separator.size();
        if (const auto place = places.take(header.name)) {
            to.set_length(index_at + 2 * *place, header.value.size());
            to.set_number(index_at + header_offsets_at + 4 * *place, static_cast<std::int32_t>(value_at));
        } else {
            to.put_number(static_cast<std::int32_t>(name_at));
            to.put_number(static_cast<std::int32_t>(header.name.size()));
            to.put_number(static_cast<std::int32_t>(value_at));
            to.put_number(static_cast<std::int32_t>(header.value.size()));
        }
        name_at = value_at + header.value.size() + line_end.size();
    }
}

void put_block(Appender& to, const Request& request, RequestLayout layout) noexcept {
    to.put_zeros(layout.leading_zeros);
    to.put(request.request_line);
    to.put(line_end);
    for (const NameValue& header : request.headers) {
        to.put(header.name);
        to.put(separator);
        to.put(header.value);
        to.put(line_end);
    }
    to.put(line_end);
}

Written write_bare(MutableBytes out, PacketType type, std::endian order) noexcept {
    const auto packet = bare_packet(type, order);
    if (out.size() < packet.size()) {
        return std::unexpected{Outcome::does_not_fit};
    }
    std::ranges::copy(packet, out.begin());
    return packet.size();
}

Written write_stream(MutableBytes out, PacketType type, Bytes content, std::endian order) noexcept {
    if (stream_size(content.size()) > out.size()) {
        return std::unexpected{Outcome::does_not_fit};
    }
    Appender to{out, order};
    while (!content.empty()) {
        const Bytes part = take(content, max_data);
        to.put_header(type, packet_header_size + part.size());
        to.put(part);
    }
    return to.written();
}

}  // namespace

std::uint64_t request_size(const Request& request, RequestLayout layout) noexcept {
    return index_offset(request) + header_index_size +
           std::uint64_t{count_unknown(request.headers)} * unknown_header_size + block_size(request, layout);
}

std::uint64_t stream_size(std::uint64_t content) noexcept {
    const std::uint64_t packets = content / max_data + (content % max_data != 0 ? 1 : 0);
    return content + packets * packet_header_size;
}

Written write_begin_request(MutableBytes out, const Request& request, RequestLayout layout) noexcept {
    if (const Outcome entries = check(request); entries != Outcome::done) {
        return std::unexpected{entries};
    }
    const std::uint64_t size = request_size(request, layout);
    if (layout.leading_zeros > max_request_packet || size > max_request_packet) {
        return std::unexpected{Outcome::bad_packet_size};
    }
    if (size > out.size()) {
        return std::unexpected{Outcome::does_not_fit};
    }
    Appender to{out, layout.order};
    put_fixed_header(to, request, static_cast<std::size_t>(size),
                     static_cast<std::size_t>(block_size(request, layout)));
    put_list(to, request.special_env);
    put_list(to, request.env);
    to.put_zeros(static_cast<std::size_t>(index_offset(request)) - to.written());
    put_index(to, request, layout);
    put_block(to, request, layout);
    return to.written();
}

Written write_abort_request(MutableBytes out, std::endian order) noexcept {
    return write_bare(out, PacketType::abort_request, order);
}

Written write_req_received(MutableBytes out, std::endian order) noexcept {
    return write_bare(out, PacketType::req_received, order);
}

Written write_pid(MutableBytes out, std::int32_t pid, std::endian order) noexcept {
    std::array<std::byte, pid_content_size> content{};
    std::ranges::copy(std::as_bytes(std::span{pid_mark}), content.begin());
    put_i32(content, pid_mark.size(), pid, order);
    return write_stream(out, PacketType::stderr_stream, content, order);
}

Written write_resp_header(MutableBytes out, std::int32_t status, std::span<const std::string_view> lines,
                          std::endian order) noexcept {
    if (lines.size() > max_sent_lines) {
        return std::unexpected{Outcome::too_many_lines};
    }
    std::uint64_t size = packet_header_size + response_info_size;
    for (const std::string_view line : lines) {
        if (line.size() >= max_response_line) {
            return std::unexpected{Outcome::name_value_too_large};
        }
        size += 2 + line.size() + 1;
    }
    if (size > packet_header_size + max_response_header) {
        return std::unexpected{Outcome::bad_packet_size};
    }
    if (size > out.size()) {
        return std::unexpected{Outcome::does_not_fit};
    }
    Appender to{out, order};
    to.put_header(PacketType::resp_header, static_cast<std::size_t>(size));
    to.put_number(static_cast<std::int32_t>(lines.size()));
    to.put_number(status);
    for (const std::string_view line : lines) {
        to.put_length(line.size() + 1);
    }
    for (const std::string_view line : lines) {
        to.put_text(line);
    }
    return to.written();
}

Written write_resp_stream(MutableBytes out, Bytes content, std::endian order) noexcept {
    return write_stream(out, PacketType::resp_stream, content, order);
}

Written write_stderr_stream(MutableBytes out, Bytes content, std::endian order) noexcept {
    return write_stream(out, PacketType::stderr_stream, content, order);
}

Written write_resp_end(MutableBytes out, std::endian order) noexcept {
    return write_bare(out, PacketType::resp_end, order);
}

Written write_conn_close(MutableBytes out, std::endian order) noexcept {
    return write_bare(out, PacketType::conn_close, order);
}

}  // namespace cede::protocol::lsapi
