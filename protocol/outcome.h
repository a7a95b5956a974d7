// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace cede::protocol {

// What became of a piece of input or of a request to write. A reader that has answered with one of the wrong
// ways stays there: it consumes nothing more and gives the same answer until it is reset. A writer that does
// not answer `done` has not touched its output.
enum class Outcome : std::uint8_t {
    need_more,        // everything given was consumed, nothing was wrong, the message goes on
    done,             // the thing asked for is complete
    bad_version,      // a record header with another version than 1
    bad_magic,        // an LSAPI packet that does not begin with "LS"
    unexpected_type,  // a record or packet type that has no place here
    unexpected_id,    // a record for a request id that is not open on this connection
    bad_body_size,    // a record of fixed size (BEGIN_REQUEST, END_REQUEST) with a body of another size
    bad_packet_size,  // an LSAPI packet of a length that its type, a FastCGI record that PHP does not allow
    unknown_status,   // an END_REQUEST with a protocolStatus that the specification does not know
    data_after_end,   // a record of a stream that had already been ended by an empty record
    name_value_too_large,  // one name-value pair is larger than the space for it, or than 31 bits can say
    stream_too_large,      // all of a stream together is larger than the limit of the caller
    too_many_pairs,        // more name-value pairs than the limit of the caller
    truncated,             // the stream was ended in the middle of a name-value pair
    bad_entry,             // an LSAPI environment entry or header line that is not what its length says
    bad_offset,            // an LSAPI offset that points outside the packet or the header block
    size_mismatch,         // an LSAPI packet whose parts do not add up to its length
    too_many_lines,        // more lines in an LSAPI response header than allowed
    head_too_large,        // an LSAPI response header larger than the space for it
    head_after_body,       // an LSAPI response header behind a part of the body
    does_not_fit,          // the space given is too small for what was to be written
    bad_layout,            // a record size to cut at that is not 1 to 65535
    too_slow,              // a request whose head has not arrived within the time of the caller
    unknown_role,          // a BEGIN_REQUEST record with a role that the specification does not know
    body_too_slow,         // the same of its body
    not_read,              // an answer whose peer has not read it within the time of the caller
};

// The enumerator in words, for a log line.
[[nodiscard]] constexpr std::string_view describe(Outcome outcome) noexcept {
    switch (outcome) {
        case Outcome::need_more:
            return "incomplete";
        case Outcome::done:
            return "complete";
        case Outcome::bad_version:
            return "record with a version other than 1";
        case Outcome::bad_magic:
            return "packet that does not begin with LS";
        case Outcome::unexpected_type:
            return "record or packet of a type that is not expected here";
        case Outcome::unexpected_id:
            return "record for a request id that is not open";
        case Outcome::bad_body_size:
            return "BEGIN_REQUEST or END_REQUEST record whose body is not 8 bytes";
        case Outcome::bad_packet_size:
            return "packet or record of a length that is not allowed";
        case Outcome::unknown_status:
            return "END_REQUEST record with an unknown protocol status";
        case Outcome::data_after_end:
            return "record of a stream that had already ended";
        case Outcome::name_value_too_large:
            return "name-value pair larger than allowed";
        case Outcome::stream_too_large:
            return "stream larger than allowed";
        case Outcome::too_many_pairs:
            return "more name-value pairs than allowed";
        case Outcome::truncated:
            return "stream that ends inside a name-value pair";
        case Outcome::bad_entry:
            return "environment entry or header line that is not what its length says";
        case Outcome::bad_offset:
            return "offset that points outside the packet or the header block";
        case Outcome::size_mismatch:
            return "packet whose parts do not add up to its length";
        case Outcome::too_many_lines:
            return "more header lines than allowed";
        case Outcome::head_too_large:
            return "response header larger than the space for it";
        case Outcome::head_after_body:
            return "response header behind a part of the body";
        case Outcome::does_not_fit:
            return "no room for the record or packet";
        case Outcome::bad_layout:
            return "record size that is not 1 to 65535";
        case Outcome::too_slow:
            return "request whose head did not arrive in time (--read-timeout)";
        case Outcome::unknown_role:
            return "BEGIN_REQUEST record with an unknown role";
        case Outcome::body_too_slow:
            return "request whose body came too slowly (--body-timeout, --body-rate)";
        case Outcome::not_read:
            return "request whose client did not read the answer in time (--write-timeout)";
    }
    return "unknown outcome";
}

}  // namespace cede::protocol
