// SPDX-License-Identifier: Apache-2.0
#include "protocol/short_answer.h"

#include <algorithm>
#include <array>

#include "protocol/fastcgi.h"
#include "protocol/fastcgi_writer.h"
#include "protocol/lsapi_writer.h"

namespace cede::protocol {

namespace {

constexpr std::string_view content_type = "Content-Type: text/plain";
constexpr std::string_view line_end = "\r\n";
constexpr std::size_t most_lines = 8;

Bytes bytes_of(std::string_view text) noexcept {
    return std::as_bytes(std::span{text.data(), text.size()});
}

// Puts pieces behind each other, or nothing at all if one does not fit.
class Piecewise {
  public:
    explicit Piecewise(MutableBytes out) noexcept : out_{out} {}

    [[nodiscard]] MutableBytes rest() const noexcept { return out_.subspan(size_); }
    void add(std::string_view text) noexcept {
        whole_ = whole_ && text.size() <= rest().size();
        if (whole_) {
            std::ranges::copy(bytes_of(text), rest().begin());
            size_ += text.size();
        }
    }
    template <typename Written>
    void add(const Written& written) noexcept {
        whole_ = whole_ && written.has_value();
        size_ += whole_ ? *written : 0;
    }
    [[nodiscard]] std::size_t size() const noexcept { return whole_ ? size_ : 0; }

  private:
    MutableBytes out_;
    std::size_t size_ = 0;
    bool whole_ = true;
};

// The text of the answer, as the content of one STDOUT record.
std::size_t write_text(MutableBytes out, const ShortAnswer& answer) noexcept {
    std::array<char, 5> digits{};
    auto at = digits.size();
    for (unsigned left = answer.status; at == digits.size() || left > 0; left /= 10) {
        digits.data()[--at] = static_cast<char>('0' + left % 10);
    }
    Piecewise text{out};
    for (const std::string_view part :
         {std::string_view{"Status: "}, std::string_view{digits.data() + at, digits.size() - at},
          std::string_view{" "}, answer.reason, line_end, content_type, line_end}) {
        text.add(part);
    }
    for (const std::string_view line : answer.lines) {
        text.add(line);
        text.add(line_end);
    }
    text.add(line_end);
    text.add(answer.body);
    return text.size();
}

std::size_t write_fastcgi(MutableBytes out, std::uint16_t id, const ShortAnswer& answer) noexcept {
    using namespace fastcgi;
    if (out.size() < header_size) {
        return 0;
    }
    const std::size_t text = write_text(out.subspan(header_size), answer);
    if (text == 0 || text > max_content) {
        return 0;
    }
    const std::size_t record = header_size + text;
    Piecewise end{out.subspan(record)};
    end.add(write_stream_end(end.rest(), RecordType::stdout_stream, id));
    end.add(
        write_end_request(end.rest(), id, 0,
                          answer.overloaded ? ProtocolStatus::overloaded : ProtocolStatus::request_complete));
    if (end.size() == 0) {
        return 0;
    }
    put_header(out, RecordType::stdout_stream, id, text, 0);
    return record + end.size();
}

std::size_t write_lsapi(MutableBytes out, const ShortAnswer& answer) noexcept {
    if (answer.lines.size() > most_lines) {
        return 0;
    }
    std::array<std::string_view, 1 + most_lines> lines{content_type};
    std::ranges::copy(answer.lines, lines.data() + 1);
    Piecewise whole{out};
    whole.add(lsapi::write_resp_header(whole.rest(), answer.status,
                                       std::span{lines.data(), 1 + answer.lines.size()}));
    whole.add(lsapi::write_resp_stream(whole.rest(), bytes_of(answer.body)));
    whole.add(lsapi::write_resp_end(whole.rest()));
    return whole.size();
}

}  // namespace

std::size_t write_short_answer(Protocol protocol, MutableBytes out, std::uint16_t id,
                               const ShortAnswer& answer) noexcept {
    switch (protocol) {
        case Protocol::fastcgi:
            return write_fastcgi(out, id, answer);
        case Protocol::lsapi:
            return write_lsapi(out, answer);
        case Protocol::unknown:
            break;
    }
    return 0;
}

}  // namespace cede::protocol
