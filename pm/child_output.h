// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "children/spawn.h"
#include "children/unique_fd.h"
#include "children/zygote_protocol.h"
#include "pm/config.h"
#include "pm/line_splitter.h"
#include "pm/poller.h"
#include "pm/rate.h"

namespace cede::pm {

// What zygote and children write to their descriptors 1 and 2, line by line into the log. Each process has a
// pipe of its own, so that whose words they are is known from where they come out and not from what they are.
// The pipes are emptied whatever the log takes: nobody who writes has to wait for a reader. With
// --child-output inherit nothing is done here.
class ChildOutput {
  public:
    using Clock = std::chrono::steady_clock;

    struct Owner {
        enum class Kind : std::uint8_t {
            child,   // by its slot
            zygote,  // by its generation
            gone,    // a process that has ended; what it started still has its pipe
        } kind = Kind::gone;
        std::uint32_t number = 0;
        bool operator==(const Owner&) const = default;
    };

    static constexpr std::uint64_t most_per_second = 1024 * 1024;  // written to the log, of each process
    static constexpr std::uint64_t most_at_once = 4 * most_per_second;
    // A line costs more than its bytes do, be it empty: work here, and space in the log.
    static constexpr std::uint64_t most_lines_per_second = 1000;  // written to the log, of each process
    static constexpr std::uint64_t most_lines_at_once = 4000;
    static constexpr std::size_t lines_of_a_turn = 500;       // written, of all; at least one of each
    static constexpr std::size_t most_in_a_turn = 64 * 1024;  // read, of each process
    static constexpr std::size_t turn = 256 * 1024;           // read, of all, as far as they are few enough
    static constexpr std::size_t least_in_a_turn = 4 * 1024;
    static constexpr Clock::duration patience =
        std::chrono::seconds{1};                  // for the end of a line, for a count
    static constexpr std::size_t most_gone = 64;  // pipes of processes that have ended

    explicit ChildOutput(Poller& poller);

    // A pipe for a process that is to be started: the end that it writes to, to be closed here as soon as the
    // process has it; none (and no error) if its output is not captured. It is given to the user of
    // `request`. The error is an errno.
    [[nodiscard]] std::expected<children::UniqueFd, int> open(Owner owner, const Config& config,
                                                              const children::SpawnRequest& request);

    // The process is there. `author` is its printed identity; what it writes is read from now on.
    void begin(Owner owner, std::string_view author);

    // The process has ended, or has never been there. All that it has written is in the log when this
    // returns; what it started, and left behind, may go on under the same `author`.
    void end(Owner owner, std::string_view author);

    // By which the agent knows the owner's pipe; nothing if there is none.
    [[nodiscard]] children::FileId file_of(Owner owner) const noexcept;

    // Events of Poller::Kind::output are noted, and carried out all together, each process having its share.
    // Of what was read, lines beyond the share are for the next turn; until then nothing more is read there.
    void on_event(const Poller::Event& event);
    void settle(Clock::time_point now);

    // When tend() has something to do: a line has not ended for too long, or lines were dropped. The epoch of
    // the clock, which is long past, if lines are left for the next turn.
    [[nodiscard]] Clock::time_point due() const noexcept {
        return behind_.empty() ? due_ : Clock::time_point{};
    }
    void tend(Clock::time_point now);

    // All that is there now, incomplete lines and counts as well.
    void flush(Clock::time_point now);

    // What another process, or the same after an execve(2), needs to go on: adopt() takes it. After flush(),
    // nothing else is remembered of a pipe. `author` is empty before begin().
    struct Held {
        Owner owner;
        int fd = -1;
        std::string author;
    };
    [[nodiscard]] std::vector<Held> held() const;
    void adopt(Owner owner, const Config& config, children::UniqueFd read_end, std::string_view author);

  private:
    struct Stream {
        Owner owner;
        children::UniqueFd fd;  // none: the place is free
        std::uint16_t age = 0;
        bool watched = false;
        std::uint64_t ended = 0;  // the order among those whose process is gone
        std::string author;
        LineSplitter splitter;
        std::string unread;  // lines for the next turn
        Rate bytes;
        Rate lines;
        Clock::time_point incomplete_since{};
        std::uint64_t dropped_lines = 0;
        std::uint64_t dropped_bytes = 0;
        Clock::time_point dropping_since{};
    };

    Stream& place_for(Owner owner, children::UniqueFd read_end, std::size_t longest_line);
    [[nodiscard]] Stream* find(Owner owner) noexcept;
    [[nodiscard]] Stream* at(const Poller::Tag& tag) noexcept;
    void watch(Stream& stream, std::string_view author);
    void read(Stream& stream, std::size_t most, std::size_t lines, Clock::time_point now);
    void drain(Stream& stream, Clock::time_point now);
    void take(Stream& stream, std::string_view bytes, std::size_t lines, Clock::time_point now);
    bool write(Stream& stream, const LineSplitter::Line& line, Clock::time_point now);
    void write_rest(Stream& stream, Clock::time_point now);
    static void confess(Stream& stream);
    void close(Stream& stream, Clock::time_point now);
    void keep_few_of_the_gone(Clock::time_point now);
    void remind(Clock::time_point at) noexcept;

    Poller& poller_;
    std::vector<Stream> streams_;
    std::vector<Poller::Tag> ready_;
    std::vector<Poller::Tag> behind_;  // those with lines for the next turn
    std::vector<char> buffer_;
    std::uint64_t ends_ = 0;
    Clock::time_point due_ = Clock::time_point::max();
};

}  // namespace cede::pm
