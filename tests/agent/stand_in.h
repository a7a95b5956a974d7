// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "children/clock.h"
#include "children/scoreboard_map.h"
#include "children/unique_fd.h"
#include "children/zygote_protocol.h"
#include "tests/support/listening.h"

namespace cede::tests {

// The supervisor's side of children/zygote_protocol.h, played by hand: starts a program with the real agent
// in it, orders children, rings, hands connections off, and hears. All waiting is bounded; what does not come
// in time throws. The end of a stand-in is the end of everything it has started.
class StandIn {
  public:
    struct Options {
        std::vector<std::string> command;      // default: the C host program
        std::vector<std::string> environment;  // of the supervisor
        std::uint32_t slots = 4;
        std::size_t listeners = 1;
        bool unix_sockets = false;
        bool blocking_listeners = false;  // as a program without an agent needs them
        protocol::Protocol protocol = protocol::Protocol::unknown;  // what the children are told to speak
        // Written over what the agent should be told; empty: the truth.
        std::string agent_variable;
        int output = 2;  // what becomes descriptors 1 and 2 of the program
    };
    // A child's own output, in the place of that of its zygote.
    struct Output {
        int fd = -1;
        children::FileId replaced;
    };

    StandIn() : StandIn(Options{}) {}
    explicit StandIn(Options options);
    ~StandIn();
    StandIn(const StandIn&) = delete;
    StandIn& operator=(const StandIn&) = delete;

    // --- zygote ---
    [[nodiscard]] pid_t pid() const { return zygote_; }
    // The next report, or nothing when the channel has been closed.
    std::optional<children::ZygoteReport> hear_zygote();
    // Hears everything up to `ready`.
    children::ZygoteReport wait_until_ready();
    // Orders a child without waiting for it.
    void order(std::uint32_t slot, std::uint32_t generation = 1) { order(slot, generation, {}); }
    void order(std::uint32_t slot, std::uint32_t generation, Output output);
    [[nodiscard]] int zygote_channel() const { return zygote_channel_.get(); }
    void close_zygote_channel() { zygote_channel_.reset(); }

    // --- children ---
    // Orders a child and waits until it is free. Its pid.
    pid_t start_child(std::uint32_t slot = 0) { return start_child(slot, {}); }
    pid_t start_child(std::uint32_t slot, Output output);
    // One for new connections only, in slot 0.
    void start_reserved_child();
    struct Heard {
        bool closed = false;
        children::ChildSays says{};
        protocol::Outcome why{};      // of a refusal
        protocol::Protocol spoken{};  // by a refused peer
    };
    // The next message of a child.
    Heard hear(std::uint32_t slot);
    // Whether one has come, without waiting.
    [[nodiscard]] bool has_spoken(std::uint32_t slot);
    // The next connection that any child gives up by parking.
    UniqueFd hear_parked();
    // The next connection whose peer has been told to close it.
    UniqueFd hear_seen_off();
    // The next connection of which a part of a request is still to come.
    UniqueFd hear_partial();
    // The next connection that has been answered, and whose peer still sends.
    UniqueFd hear_lingering();
    // Whether a connection was parked or is to be seen off, without waiting.
    [[nodiscard]] bool has_parked();
    void ring(std::uint32_t slot);
    void close_channel(std::uint32_t slot) { channels_[slot].reset(); }
    void close_all_channels();
    // As the supervisor tells a child to give up. False: it was not idle.
    bool tell_to_give_up(std::uint32_t slot);
    // As the supervisor ends a request that runs for too long: the so-manieth that the child has begun.
    void tell_to_end_request(pid_t child, std::uint64_t begun);

    [[nodiscard]] children::Slot& slot(std::uint32_t index) { return scoreboard_.slot(index); }
    [[nodiscard]] children::Control& control() { return scoreboard_.control(); }
    [[nodiscard]] bool becomes(std::uint32_t slot, children::ChildState state);
    // Stops a process, and returns when it stands still.
    [[nodiscard]] bool stop(pid_t pid);
    [[nodiscard]] static bool sleeps(pid_t pid);
    // Waits until it sleeps, signals, and waits until it has seen that and sleeps again.
    [[nodiscard]] static bool disturb(pid_t pid, int signal);
    // For the wait status of a process, which has to end by itself.
    [[nodiscard]] std::optional<int> exit_of(pid_t pid);

    // --- connections ---
    UniqueFd connect(std::size_t listener = 0);
    void hand_off(UniqueFd connection) { hand_off(std::move(connection), children::monotonic_ns()); }
    // One that waits since this time.
    void hand_off(UniqueFd connection, std::uint64_t since_ns, bool as_it_is = false);
    [[nodiscard]] std::size_t waiting_in_listen_queue();
    // Parks nonsense until the socket takes no more. How many messages.
    int fill_parking();
    // A part of a request is not given away from now on, as when there is no room for it.
    void keep_parts() { control().give_up_by = children::GiveUpBy::closing_even_new; }
    void close_listeners() { listeners_.clear(); }
    [[nodiscard]] SocketAddress address(std::size_t listener = 0) const;

  private:
    void open_listeners(const Options& options);
    void start(const Options& options);
    UniqueFd hear_given_up(children::ChildSays how);

    struct Directory;
    std::unique_ptr<Directory> directory_;
    children::ScoreboardMap scoreboard_;
    std::vector<UniqueFd> listeners_;
    std::vector<SocketAddress> addresses_;
    UniqueFd handoff_sender_;
    UniqueFd handoff_receiver_;
    UniqueFd zygote_channel_;
    std::vector<UniqueFd> channels_;
    pid_t zygote_ = -1;
    std::vector<pid_t> children_;
    bool reserve_ = false;
};

// Runs a program with the agent preloaded (or not), without a supervisor, and returns what it wrote.
// `status`: its wait status.
std::string run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                        int& status);

// Whether a process that is not ours to wait for is no more.
bool has_ended(pid_t pid);

// Whether nobody listens there any more.
bool can_listen_at(const SocketAddress& address);

// Paths of what the tests are about; from the build.
std::string host_path();
std::string agent_path();
std::string source_path(const std::string& file);

}  // namespace cede::tests
