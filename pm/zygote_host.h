// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <sys/types.h>

#include "children/spawn.h"
#include "children/unique_fd.h"
#include "children/zygote_protocol.h"
#include "pm/handover.h"
#include "pm/poller.h"
#include "pm/startup.h"

namespace cede::pm {

// The supervisor's handle of a zygote: starts it, orders children from it, hears what it says, and can tell
// why a start went wrong. One process at a time; each start is a new generation, which the caller numbers.
//
// Where each child is executed by itself (--spawn exec) the first process is a scout only: it shows that PHP
// starts and what it is, and is ended then. From there on there is no process here, and an order executes
// one.
class ZygoteHost {
  public:
    using Clock = std::chrono::steady_clock;
    enum class Phase : std::uint8_t {
        down,
        started,  // executed; the agent has not spoken
        loaded,   // the agent is in it; PHP starts
        ready,    // forks children
    };
    struct Listener {
        std::function<void()> ready;
        std::function<void(const children::ZygoteReport&)> forked;  // or not: ZygoteReport::says
    };

    // `start` has everything but the channel, which becomes the first of the inherited descriptors. Events
    // have `id` as their index.
    ZygoteHost(Poller& poller, std::uint32_t id, Start start, Listener listener);
    ZygoteHost(const ZygoteHost&) = delete;
    ZygoteHost& operator=(const ZygoteHost&) = delete;
    ~ZygoteHost();

    // Its descriptors 1 and 2 become `output`; -1: our own stderr. False: the start failed; `explanation`
    // says why.
    [[nodiscard]] bool start(std::uint32_t generation, Clock::time_point now, int output,
                             std::string& explanation);
    // Goes on with a process that another host has started. False: it can't be watched.
    [[nodiscard]] bool adopt(const Handover::Zygote& running) noexcept;
    [[nodiscard]] Handover::Zygote describe() const noexcept;
    // `child_output`: its descriptors 1 and 2 in the place of `replaced`; -1: as the zygote's.
    [[nodiscard]] bool order(std::uint32_t slot, int child_channel, int child_output,
                             children::FileId replaced);
    // The child that the latest order has executed; 0: the zygote will tell (Listener::forked).
    [[nodiscard]] pid_t executed() const noexcept { return executed_; }
    void on_readable();
    // The process has ended with this wait status. Returns why, in a sentence with a remedy where one is
    // known. A scout that had become ready leaves the phase at that.
    [[nodiscard]] std::string on_exit(int status);
    // Ends it: by closing its channel, or by SIGKILL.
    void dismiss() noexcept;
    void kill() noexcept;

    // Set when the start can not be waited for any longer: what it hangs at. Empty while there is time.
    [[nodiscard]] std::string overdue(Clock::time_point now, Clock::duration start_timeout) const;

    [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
    [[nodiscard]] const children::SpawnRequest& request() const noexcept { return request_; }
    // For the log: what the process is.
    [[nodiscard]] const char* role() const noexcept { return each_by_itself_ ? "scout" : "zygote"; }
    [[nodiscard]] const std::string& program() const noexcept { return request_.command.front(); }
    [[nodiscard]] Phase phase() const noexcept { return phase_; }
    // What its children speak, once it is ready.
    [[nodiscard]] protocol::Protocol protocol() const noexcept { return protocol_; }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] Clock::time_point started_at() const noexcept { return started_at_; }
    // The latest dismiss().
    [[nodiscard]] Clock::time_point dismissed_at() const noexcept { return dismissed_at_; }

  private:
    [[nodiscard]] std::string objection(const children::ZygoteReport& report) const;
    void hear(const children::ZygoteReport& report);

    Poller& poller_;
    std::uint32_t id_;
    children::UniqueFd agent_;
    children::SpawnRequest request_;
    bool each_by_itself_;
    pid_t executed_ = 0;
    Listener listener_;
    Phase phase_ = Phase::down;
    pid_t pid_ = 0;
    std::uint32_t generation_ = 0;
    children::UniqueFd channel_;
    Clock::time_point started_at_{};
    Clock::time_point dismissed_at_{};
    std::string sapi_;  // PHP's own name, once known
    protocol::Protocol protocol_ = protocol::Protocol::unknown;
    std::string refusal_;  // why it can't be used, when it has been ended for that
};

}  // namespace cede::pm
