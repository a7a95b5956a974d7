// SPDX-License-Identifier: Apache-2.0
#include "pm/child_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "pm/log.h"

namespace cede::pm {

using children::UniqueFd;

namespace {

// What the log has around a text: time, level, identity.
constexpr std::uint64_t around_a_line = 96;

// The kernel allows a plain user 64 MiB of pipes before it makes new ones small, those of scripts, too
// (pipe(7), pipe-user-pages-soft): larger ones for a pool of usual size only.
constexpr int larger_pipe = 256 * 1024;
constexpr unsigned most_larger_pipes = 64;

constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();

constexpr mode_t only_to_be_written = S_IWUSR;

bool interrupted_or_empty(int error) noexcept {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

ChildOutput::ChildOutput(Poller& poller) : poller_{poller}, buffer_(most_in_a_turn) {}

// --- who has a pipe ---

std::expected<UniqueFd, int> ChildOutput::open(Owner owner, const Config& config,
                                               const children::SpawnRequest& request) {
    if (config.child_output == ChildOutputMode::inherit) {
        return UniqueFd{};
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        return std::unexpected{errno};
    }
    UniqueFd read_end{ends[0]};
    UniqueFd write_end{ends[1]};
    if (config.children <= most_larger_pipes) {
        (void)::fcntl(read_end.get(), F_SETPIPE_SZ, larger_pipe);
    }
    // For who opens /dev/stderr by its name, which is judged by the owner of the pipe (proc(5),
    // /proc/pid/fd). Nobody has to read there but us. Where it is refused, everything else works all the
    // same.
    if (request.change_identity) {
        (void)!::fchown(write_end.get(), request.uid, request.gid);
    }
    (void)::fchmod(write_end.get(), only_to_be_written);
    place_for(owner, std::move(read_end), config.child_output_line);
    return write_end;
}

void ChildOutput::begin(Owner owner, std::string_view author) {
    if (Stream* const stream = find(owner); stream != nullptr && !stream->watched) {
        watch(*stream, author);
    }
}

void ChildOutput::end(Owner owner, std::string_view author) {
    begin(owner, author);
    Stream* const stream = find(owner);
    if (stream == nullptr) {
        return;
    }
    const auto now = Clock::now();
    drain(*stream, now);
    if (!stream->fd) {
        return;
    }
    write_rest(*stream, now);
    confess(*stream);
    stream->owner = {};
    stream->ended = ++ends_;
    keep_few_of_the_gone(now);
}

children::FileId ChildOutput::file_of(Owner owner) const noexcept {
    const auto found = std::ranges::find_if(
        streams_, [owner](const Stream& stream) { return stream.fd && stream.owner == owner; });
    struct stat status {};
    if (found == streams_.end() || ::fstat(found->fd.get(), &status) != 0) {
        return {};
    }
    return {status.st_dev, status.st_ino};
}

std::vector<ChildOutput::Held> ChildOutput::held() const {
    std::vector<Held> all;
    for (const Stream& stream : streams_) {
        if (stream.fd) {
            all.push_back({stream.owner, stream.fd.get(), stream.author});
        }
    }
    return all;
}

void ChildOutput::adopt(Owner owner, const Config& config, UniqueFd read_end, std::string_view author) {
    Stream& stream = place_for(owner, std::move(read_end), config.child_output_line);
    stream.ended = owner.kind == Owner::Kind::gone ? ++ends_ : 0;
    if (!author.empty()) {
        watch(stream, author);
    }
}

ChildOutput::Stream& ChildOutput::place_for(Owner owner, UniqueFd read_end, std::size_t longest_line) {
    // The flag is of this end's open file, which is ours alone: whoever writes may block, and loses nothing.
    const int flags = ::fcntl(read_end.get(), F_GETFL);
    (void)::fcntl(read_end.get(), F_SETFL, flags | O_NONBLOCK);
    const auto vacant = std::ranges::find_if(streams_, [](const Stream& stream) { return !stream.fd; });
    Stream fresh{.owner = owner,
                 .fd = std::move(read_end),
                 .author = {},
                 .splitter = LineSplitter{longest_line},
                 .unread = {},
                 .bytes = Rate{most_per_second, most_at_once},
                 .lines = Rate{most_lines_per_second, most_lines_at_once}};
    if (vacant == streams_.end()) {
        return streams_.emplace_back(std::move(fresh));
    }
    fresh.age = static_cast<std::uint16_t>(vacant->age + 1);
    return *vacant = std::move(fresh);
}

ChildOutput::Stream* ChildOutput::find(Owner owner) noexcept {
    if (owner.kind == Owner::Kind::gone) {
        return nullptr;
    }
    const auto found = std::ranges::find_if(
        streams_, [owner](const Stream& stream) { return stream.fd && stream.owner == owner; });
    return found == streams_.end() ? nullptr : &*found;
}

// None: it has ended since, and its place may have gone to another.
ChildOutput::Stream* ChildOutput::at(const Poller::Tag& tag) noexcept {
    const bool there =
        tag.index < streams_.size() && streams_[tag.index].age == tag.age && streams_[tag.index].fd;
    return there ? &streams_[tag.index] : nullptr;
}

void ChildOutput::watch(Stream& stream, std::string_view author) {
    stream.author = author;
    const auto index = static_cast<std::uint32_t>(&stream - streams_.data());
    stream.watched = poller_.add(stream.fd.get(), EPOLLIN, {Poller::Kind::output, index, stream.age});
    if (!stream.watched) {
        // Nobody would empty it, and its writer would wait for ever; one without a reader gets an error.
        log_always(LogLevel::error, fmt::format("the output of {} can't be read, and is lost: {} (see "
                                                "/proc/sys/fs/epoll/max_user_watches)",
                                                author, std::strerror(errno)));
        stream.fd.reset();
    }
}

// --- what comes out ---

void ChildOutput::on_event(const Poller::Event& event) {
    ready_.push_back(event.tag);
}

void ChildOutput::settle(Clock::time_point now) {
    std::erase_if(ready_, [this](const Poller::Tag& tag) {
        const Stream* const stream = at(tag);
        return stream == nullptr || !stream->unread.empty();
    });
    ready_.insert(ready_.end(), behind_.begin(), behind_.end());
    behind_.clear();
    if (ready_.empty()) {
        return;
    }
    const std::size_t share = std::clamp(turn / ready_.size(), least_in_a_turn, most_in_a_turn);
    const std::size_t lines = std::max<std::size_t>(lines_of_a_turn / ready_.size(), 1);
    for (const Poller::Tag& tag : ready_) {
        if (Stream* const stream = at(tag); stream != nullptr) {
            read(*stream, share, lines, now);
            if (!stream->unread.empty()) {
                behind_.push_back(tag);
            }
        }
    }
    ready_.clear();
}

// What is left of the last time, or else what is in the pipe.
void ChildOutput::read(Stream& stream, std::size_t most, std::size_t lines, Clock::time_point now) {
    if (!stream.unread.empty()) {
        take(stream, std::exchange(stream.unread, {}), lines, now);
        return;
    }
    const ssize_t got = ::read(stream.fd.get(), buffer_.data(), std::min(most, buffer_.size()));
    if (got > 0) {
        take(stream, {buffer_.data(), static_cast<std::size_t>(got)}, lines, now);
    } else if (got == 0 || !interrupted_or_empty(errno)) {
        close(stream, now);
    }
}

// What is in the pipe at this moment, and no more: whoever else has it may write for ever.
void ChildOutput::drain(Stream& stream, Clock::time_point now) {
    if (!stream.unread.empty()) {
        take(stream, std::exchange(stream.unread, {}), any_number, now);
    }
    int there = 0;
    if (::ioctl(stream.fd.get(), FIONREAD, &there) != 0) {
        there = 0;
    }
    for (auto left = static_cast<std::size_t>(there); left > 0;) {
        const ssize_t got = ::read(stream.fd.get(), buffer_.data(), std::min(left, buffer_.size()));
        if (got <= 0) {
            break;
        }
        take(stream, {buffer_.data(), static_cast<std::size_t>(got)}, any_number, now);
        left -= static_cast<std::size_t>(got);
    }
    read(stream, buffer_.size(), any_number, now);  // its end, if there is nobody else
}

// `lines`: so many are written at the most. Those that are dropped cost next to nothing.
void ChildOutput::take(Stream& stream, std::string_view bytes, std::size_t lines, Clock::time_point now) {
    bool begins = !stream.splitter.incomplete();
    while (lines > 0) {
        const auto line = stream.splitter.next(bytes);
        if (!line) {
            break;
        }
        if (write(stream, *line, now)) {
            --lines;
        }
        begins = true;
    }
    stream.unread = bytes;
    if (begins && stream.splitter.incomplete()) {
        stream.incomplete_since = now;
        remind(now + patience);
    }
}

// False: it was dropped. Once a line was, all others are, too, until the count has been said: what is missing
// is in one place.
bool ChildOutput::write(Stream& stream, const LineSplitter::Line& line, Clock::time_point now) {
    if (stream.dropped_lines > 0 || !stream.lines.take(1, now) ||
        !stream.bytes.take(line.text.size() + around_a_line, now)) {
        if (stream.dropped_lines == 0) {
            stream.dropping_since = now;
            remind(now + patience);
        }
        ++stream.dropped_lines;
        stream.dropped_bytes += line.text.size() + line.left_out;
        return false;
    }
    log_output(stream.author, line.text, line.left_out);
    return true;
}

void ChildOutput::write_rest(Stream& stream, Clock::time_point now) {
    if (const auto line = stream.splitter.rest()) {
        (void)write(stream, *line, now);
    }
}

void ChildOutput::confess(Stream& stream) {
    if (stream.dropped_lines > 0) {
        log_always(
            LogLevel::warning,
            fmt::format("{} wrote more than {} lines or {} KiB a second: {} lines of its output, {} bytes, "
                        "were dropped",
                        stream.author, most_lines_per_second, most_per_second / 1024, stream.dropped_lines,
                        stream.dropped_bytes));
        stream.dropped_lines = 0;
        stream.dropped_bytes = 0;
    }
}

void ChildOutput::close(Stream& stream, Clock::time_point now) {
    write_rest(stream, now);
    confess(stream);
    poller_.remove(stream.fd.get());
    stream.fd.reset();
}

void ChildOutput::keep_few_of_the_gone(Clock::time_point now) {
    std::size_t count = 0;
    Stream* oldest = nullptr;
    for (Stream& stream : streams_) {
        if (stream.fd && stream.owner.kind == Owner::Kind::gone) {
            ++count;
            oldest = oldest == nullptr || stream.ended < oldest->ended ? &stream : oldest;
        }
    }
    if (count > most_gone) {
        drain(*oldest, now);
        if (oldest->fd) {
            close(*oldest, now);
        }
    }
}

// --- what time brings ---

void ChildOutput::remind(Clock::time_point at) noexcept {
    due_ = std::min(due_, at);
}

void ChildOutput::tend(Clock::time_point now) {
    settle(now);
    if (now < due_) {
        return;
    }
    due_ = Clock::time_point::max();
    for (Stream& stream : streams_) {
        if (stream.dropped_lines > 0) {
            if (now - stream.dropping_since >= patience) {
                confess(stream);
            } else {
                remind(stream.dropping_since + patience);
            }
        }
        if (stream.splitter.incomplete()) {
            if (now - stream.incomplete_since >= patience) {
                write_rest(stream, now);
            } else {
                remind(stream.incomplete_since + patience);
            }
        }
    }
}

void ChildOutput::flush(Clock::time_point now) {
    for (Stream& stream : streams_) {
        if (stream.fd && stream.watched) {
            drain(stream, now);
        }
        if (stream.fd) {
            write_rest(stream, now);
            confess(stream);
        }
    }
}

}  // namespace cede::pm
