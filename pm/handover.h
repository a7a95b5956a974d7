// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <sys/types.h>
#include <vector>

#include "children/unique_fd.h"
#include "pm/parking_lot.h"

namespace cede::pm {

// What one cede leaves to the next that is executed in the same process (docs/design/0009-upgrade.md).
// Descriptors keep their numbers. Times are CLOCK_MONOTONIC in nanoseconds.
struct Handover {
    struct Socket {
        int fd = -1;
        int kind = 0;
        std::string name;
        bool created = false;
        std::string access;
        std::string path;
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        int backlog_asked = 0;
        int backlog_granted = 0;
        bool nonblocking_before = true;
    };
    struct Child {
        std::uint32_t slot = 0;
        pid_t pid = 0;
        int channel = -1;  // -1: it has closed its end
        bool ready = false;
        bool leaving = false;
        bool outdated = false;
        std::uint32_t generation = 0;
        unsigned chance = 0;
        std::int64_t ordered_at = 0;
        std::int64_t ready_at = 0;
        std::int64_t leaving_since = 0;
        bool reserved = false;
    };
    struct Zygote {
        pid_t pid = 0;
        int channel = -1;
        std::uint32_t generation = 0;
        std::uint32_t protocol = 0;
        std::int64_t started_at = 0;
    };
    struct Output {
        int kind = 0;  // ChildOutput::Owner
        std::uint32_t number = 0;
        int fd = -1;
        std::string author;
    };
    struct Control {
        int fd = -1;  // -1: there is none
        std::string path;
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
    };
    struct Setting {
        std::string name;
        std::string value;
    };

    // Both must agree on these, or there is no handover.
    std::uint32_t format = current_format;
    std::uint32_t scoreboard_version = 0;
    std::uint32_t protocol_version = 0;  // of supervisor and agent

    std::int64_t born = 0;
    pid_t supervisor = 0;  // the process that this is for
    std::string version;   // of the one that leaves
    std::string executed;  // the path that it was started by
    std::vector<std::string> arguments;
    int executable = -1;           // its own file, to go back to
    std::uint64_t files_soft = 0;  // the limit of open files that it was started with
    std::uint64_t files_hard = 0;
    std::vector<Setting> settings;  // Config::settings, with which the children run
    std::vector<std::string> command;
    std::uint32_t slots = 0;  // that the scoreboard has
    std::vector<Socket> listeners;
    int scoreboard = -1;
    int handoff_ours = -1;
    int handoff_theirs = -1;
    int parent = -1;  // whose end is awaited (pidfd_open(2)); -1: nobody's
    int client = -1;  // who asked for the upgrade and waits for an answer; -1: nobody
    Control control;
    std::string totals;  // pm/totals.h
    std::uint32_t generation = 0;
    Zygote zygote;
    std::vector<Child> children;
    std::vector<Output> outputs;
    std::vector<Held> parked;
    std::vector<Held> fresh;
    std::vector<Held> partial;
    std::vector<Held> leaving;
    std::vector<Held> lingering;
    std::vector<Held> queued;

    static constexpr std::uint32_t current_format = 2;
};

// A sealed file in memory (memfd_create(2)) that holds it. The error is an errno.
[[nodiscard]] std::expected<children::UniqueFd, int> write_handover(const Handover& handover);

// What stands in such a file, if it is one, complete, and of versions that we can take over from; and if all
// its descriptors are open, unless this is only a look at it from another process. The error says what is
// wrong.
enum class Reading : std::uint8_t { look, take_over };
[[nodiscard]] std::expected<Handover, std::string> read_handover(int fd, Reading reading);

// All descriptors that the next program has to get.
[[nodiscard]] std::vector<int> descriptors_of(const Handover& handover);

// Variables by which the next program finds it: the descriptor; set instead of the first if it is only asked
// whether it could; why the one that was tried could not.
inline constexpr char handover_variable[] = "CEDE_HANDOVER";
inline constexpr char handover_check_variable[] = "CEDE_HANDOVER_CHECK";
inline constexpr char handover_failed_variable[] = "CEDE_HANDOVER_FAILED";

}  // namespace cede::pm
