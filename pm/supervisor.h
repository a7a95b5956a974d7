// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "children/scoreboard_map.h"
#include "children/spawn.h"
#include "children/unique_fd.h"
#include "children/zygote_protocol.h"
#include "pm/answer.h"
#include "pm/config.h"
#include "pm/control_server.h"
#include "pm/control_socket.h"
#include "pm/dispatcher.h"
#include "pm/listener.h"
#include "pm/overtime.h"
#include "pm/poller.h"
#include "pm/pool.h"
#include "pm/refusals.h"
#include "pm/respawn.h"
#include "pm/sizing.h"
#include "pm/status.h"
#include "pm/totals.h"
#include "pm/zygote_host.h"

namespace cede::pm {

// One pool: keeps the zygote and the children alive, hears what happens and passes it on. Who gives up is the
// dispatcher's business.
class Supervisor {
  public:
    // `request` lacks the descriptors, which the supervisor adds. Throws std::system_error.
    Supervisor(const Config& config, std::span<Listener> listeners, children::ScoreboardMap scoreboard,
               children::SpawnRequest request, Dispatcher::Room room);

    // Before run(): stops gracefully when the process behind this pidfd ends.
    void follow(children::UniqueFd parent);

    // Before run(): commands come in at this socket, whose file is removed at the end.
    void control_by(ControlSocket socket);

    // Serves until stopped. The exit status: 0, or 1 if the children could never be started.
    int run();

  private:
    using Clock = std::chrono::steady_clock;
    enum class Course : std::uint8_t { starting, serving, draining, stopping };

    void watch_poller();
    void on_events();
    void watch_signals();
    void on_signal(int number);
    void arm_timer();
    void on_timer();

    void start_zygote();
    void fail_start(const std::string& explanation);
    void on_zygote_ready();
    void on_forked(const children::ZygoteReport& report);
    [[nodiscard]] Headcount count_heads();
    void resize();
    void enter_service();
    [[nodiscard]] bool order_child(std::uint32_t slot);
    void retire(std::uint32_t slot, std::string_view why);
    void retire_spare(unsigned count);
    void recycle(Clock::time_point now);
    void end_slow_starts(Clock::time_point now);
    void on_child_readable(const Poller::Event& event);
    void on_child_ready(std::uint32_t slot);
    void on_refused(std::uint32_t slot, const children::ChildReport& report);
    void drop_channel(std::uint32_t slot) noexcept;

    void reap();
    void on_zygote_exit(int status);
    void on_child_exit(std::uint32_t slot, int status);
    void settle_orders_of_dead_zygote();
    [[nodiscard]] bool adopt(std::uint32_t slot);
    void on_channel_end(std::uint32_t slot);

    void end_overlong(Clock::time_point now);
    void drain(std::string_view cause);
    void end_drain_if_empty();
    void stop();
    void tell_all(children::RunMode mode) noexcept;
    void kill_all() noexcept;
    void finish_if_empty();
    void reap_stragglers() noexcept;
    void finish(int exit_status);

    // Commands (supervisor_control.cpp).
    [[nodiscard]] Status status();
    [[nodiscard]] Status::Child status_of(std::uint32_t slot);
    void stop_on_command(bool fast, Answer answer);
    void reload(Answer answer);
    void upgrade(int client);
    void set_children(unsigned count, Answer answer);
    void count_last(std::uint32_t slot, int wait_status) noexcept;
    void end_control() noexcept;

    Config config_;
    std::span<Listener> listeners_;
    children::ScoreboardMap scoreboard_;
    Pool pool_;
    Poller poller_;
    Dispatcher dispatcher_;
    ZygoteHost zygote_;
    Respawn zygote_respawn_;
    Respawn child_respawn_;
    Sizing sizing_;
    Clock::time_point recycle_due_{};
    std::minstd_rand random_{std::random_device{}()};
    Refusals refusals_;
    Overtime overtime_;
    struct EarlyExit {
        pid_t pid;
        int status;
    };
    std::vector<EarlyExit> early_exits_;  // reaped before the zygote could report them
    Course course_ = Course::starting;
    Clock::time_point stop_deadline_{};
    int exit_status_ = 0;
    Totals totals_;
    const Clock::time_point born_ = Clock::now();
    std::optional<Status::Reload> last_reload_;
    std::vector<Answer> stop_answers_;
    ControlSocket control_socket_;

    boost::asio::io_context loop_{1};
    boost::asio::posix::stream_descriptor poller_handle_{loop_};
    boost::asio::posix::stream_descriptor parent_{loop_};
    boost::asio::signal_set signals_{loop_};
    boost::asio::steady_timer timer_{loop_};
    Clock::time_point timer_set_for_ = Clock::time_point::max();
    std::unique_ptr<ControlServer> control_;
};

}  // namespace cede::pm
