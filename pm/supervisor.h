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
#include "pm/child_output.h"
#include "pm/config.h"
#include "pm/control_server.h"
#include "pm/control_socket.h"
#include "pm/dispatcher.h"
#include "pm/handover.h"
#include "pm/listener.h"
#include "pm/memory_events.h"
#include "pm/overtime.h"
#include "pm/pace.h"
#include "pm/poller.h"
#include "pm/pool.h"
#include "pm/refusals.h"
#include "pm/respawn.h"
#include "pm/saturation.h"
#include "pm/service_manager.h"
#include "pm/sizing.h"
#include "pm/standstill.h"
#include "pm/startup.h"
#include "pm/status.h"
#include "pm/totals.h"
#include "pm/zygote_host.h"

namespace cede::pm {

// One pool: keeps the zygote and the children alive, hears what happens and passes it on. Who gives up is the
// dispatcher's business.
class Supervisor {
  public:
    // `start` lacks the descriptors, which the supervisor adds. `refresh` is for reload(). `handoff`: of a
    // supervisor that this one goes on for. Throws std::system_error.
    Supervisor(const Config& config, std::span<Listener> listeners, children::ScoreboardMap scoreboard,
               Start start, Refresh refresh, Self self, Handoff::Ends handoff = {});

    // Before run(): goes on with what the supervisor had that was executed in this process before. Takes over
    // all descriptors but those of the constructor's arguments. `failure`: why another program could not, if
    // that was tried.
    void resume(const Handover& handover, const std::string& failure);

    // Before run(): stops gracefully when the process behind this pidfd ends.
    void follow(children::UniqueFd parent);

    // Before run(): commands come in at this socket, whose file is removed at the end.
    void control_by(ControlSocket socket);

    // Another generation of children, by the configuration as it is then, takes the place of the running one,
    // step by step. If it does not work, the running one goes on. `cause` is for the log. One after the
    // other: what is asked for meanwhile is done once, afterwards.
    void reload(std::string_view cause, Answer answer);
    // How many children, at the most if they are not fixed, until the next reload.
    void set_children(unsigned children, Answer answer);

    // The program that is now where ours was started from goes on in this process, with all children and
    // connections; it answers `client` (pm/control_server.h), unless that is none. If it can't, we go on.
    void upgrade(children::UniqueFd client);

    // Serves until stopped. The exit status: 0, or 1 if the children could never be started.
    int run();

  private:
    using Clock = std::chrono::steady_clock;
    enum class Course : std::uint8_t { starting, serving, draining, stopping };
    struct Reload {
        enum class Stage : std::uint8_t {
            none,
            loading,    // PHP starts
            proving,    // its first child does
            replacing,  // the configuration is the running one, children are replaced
        } stage = Stage::none;
        Config config;                  // until it is the running one
        std::vector<std::string> kept;  // settings that need a restart to change
        std::uint32_t trial = 0;        // slot of the first child
        unsigned credits = 0;           // successors that are ready and have not replaced anybody yet
        unsigned replaced = 0;
        bool stalled = false;        // new children do not become ready
        bool by_force = false;       // outdated children are killed
        bool outdated_left = false;  // some still serve their last request
        Clock::time_point begun{};
        Clock::time_point last_progress{};
        std::vector<Answer> answers;
        std::vector<Answer> answers_of_next;
        std::string next_cause;  // not empty: once more, when this one has ended
    };

    [[nodiscard]] bool ending() const noexcept {
        return course_ == Course::draining || course_ == Course::stopping;
    }
    // A child with nothing to do; connected, if it is idle.
    [[nodiscard]] static constexpr bool has_time(children::ChildState state) noexcept {
        return state == children::ChildState::free || state == children::ChildState::idle;
    }
    static void hold_all_signals(bool hold) noexcept;
    void watch_poller();
    void on_events();
    void watch_signals();
    void on_signal(int number);
    void publish_settings();
    void publish_title(std::string_view title) noexcept;
    void arm_timer();
    void tend_service_manager(Clock::time_point now);
    [[nodiscard]] std::string summary();
    void on_timer();

    [[nodiscard]] std::unique_ptr<ZygoteHost> make_zygote(Start start);
    template <typename Wanted>
    [[nodiscard]] ZygoteHost* find_zygote_if(Wanted wanted) {
        for (ZygoteHost* const zygote : {zygote_.get(), next_zygote_.get()}) {
            if (zygote != nullptr && wanted(*zygote)) {
                return zygote;
            }
        }
        for (const auto& zygote : former_zygotes_) {
            if (wanted(*zygote)) {
                return zygote.get();
            }
        }
        return nullptr;
    }
    [[nodiscard]] ZygoteHost* find_zygote(std::uint32_t id) noexcept;
    [[nodiscard]] ZygoteHost* find_zygote_by_pid(pid_t pid) noexcept;
    [[nodiscard]] ZygoteHost* find_zygote_of(std::uint32_t generation) noexcept;
    void start_zygote();
    void fail_start(const std::string& explanation);
    void on_zygote_ready(std::uint32_t id);
    void on_forked(const children::ZygoteReport& report);
    void on_alive(std::uint32_t slot);
    void on_known(std::uint32_t slot);
    [[nodiscard]] Headcount count_heads();
    void resize();
    void enter_service();
    [[nodiscard]] std::optional<std::uint32_t> find_place();
    [[nodiscard]] std::optional<std::uint32_t> order_child(ZygoteHost& zygote, const Config& config);
    void retire(std::uint32_t slot, std::string_view why);
    void retire_spare(unsigned count);
    void recycle(Clock::time_point now);
    void end_slow_starts(Clock::time_point now);
    void on_child_readable(const Poller::Event& event);
    void on_child_ready(std::uint32_t slot);
    void on_refused(std::uint32_t slot, const children::ChildReport& report);
    void drop_channel(std::uint32_t slot) noexcept;
    [[nodiscard]] bool is_child_of_ours(pid_t pid) const noexcept;
    void kill_child(std::uint32_t slot, int number) noexcept;
    void vacate(std::uint32_t slot, const std::string& why);

    [[nodiscard]] bool launch(ZygoteHost& zygote, const Config& config, std::string& explanation);
    [[nodiscard]] std::optional<children::UniqueFd> open_output(std::uint32_t slot, const ZygoteHost& zygote,
                                                                const Config& config);
    [[nodiscard]] children::FileId output_of(const ZygoteHost& zygote) const noexcept;
    void begin_output(std::uint32_t slot);
    void end_output(std::uint32_t slot);
    void end_output(const ZygoteHost& zygote, pid_t pid);

    void begin_reload(std::string_view cause);
    void prove_next();
    void commit_reload();
    void take_over_config(Config config);
    void roll();
    [[nodiscard]] bool retire_outdated();
    [[nodiscard]] bool any_superseded_has_time();
    void on_successor_ready(std::uint32_t slot);
    void on_vacated(std::uint32_t slot, const std::string& why);
    void tend_reload(Clock::time_point now);
    void end_outdated(Clock::time_point now);
    void finish_reload();
    void fail_reload(const std::string& why);
    void watch_for_standstill(Clock::time_point now);
    void abandon_reload();
    void end_reload(const Outcome& outcome);
    void answer_all(const Outcome& outcome);
    void begin_next_reload();
    void dismiss_zygote(std::unique_ptr<ZygoteHost> zygote);
    void check_children_wanted(Clock::time_point now);

    void on_upgrade_checked(int status);
    void tend_upgrade(Clock::time_point now);
    [[nodiscard]] bool is_quiet() const noexcept;
    void execute_successor();
    [[nodiscard]] Handover describe_all() const;
    void fail_upgrade(const std::string& why);
    void abandon_upgrade();

    void reap();
    void on_zygote_exit(ZygoteHost& zygote, int status);
    void for_all_zygotes(void (ZygoteHost::*action)() noexcept) noexcept;
    void on_child_exit(std::uint32_t slot, int status);
    void settle_orders_of_dead_zygote(std::uint32_t generation);
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
    [[nodiscard]] Outcome reopen_on_command();
    [[nodiscard]] Totals totals_now() const;
    void count_last(std::uint32_t slot, int wait_status);

    // Those who wait (supervisor_queue.cpp).
    void tend_queue(Clock::time_point now);
    [[nodiscard]] Clock::time_point queue_due() const noexcept;
    [[nodiscard]] Saturation::Why why_in_vain() const noexcept;
    void tell_fullness(Clock::time_point now);
    void count_all();
    void fit_backlog();
    void describe_queue(Status& status);
    void end_control() noexcept;

    Config config_;
    std::span<Listener> listeners_;
    children::ScoreboardMap scoreboard_;
    Pool pool_;
    Poller poller_;
    ChildOutput output_{poller_};
    Dispatcher dispatcher_;
    Refresh refresh_;
    std::uint32_t last_zygote_id_ = 0;
    std::uint32_t generation_ = 0;
    std::unique_ptr<ZygoteHost> zygote_;                       // of the running configuration
    std::unique_ptr<ZygoteHost> next_zygote_;                  // of the one that a reload tries
    std::vector<std::unique_ptr<ZygoteHost>> former_zygotes_;  // dismissed, not yet ended
    Reload reload_;
    Self self_;
    ServiceManager service_manager_;
    Clock::time_point service_status_due_{};
    struct Upgrade {
        enum class Stage : std::uint8_t {
            none,
            checking,  // whether the new program could
            waiting,   // until nothing is half done
            settling,  // signals are held back
        } stage = Stage::none;
        children::UniqueFd client;
        children::UniqueFd said;  // what the check has printed
        pid_t check = 0;
        Clock::time_point deadline{};
    };
    Upgrade upgrade_;
    bool resumed_ = false;
    struct ChildrenWanted {
        unsigned children;
        Clock::time_point deadline;
        Answer answer;
    };
    std::optional<ChildrenWanted> children_wanted_;
    Respawn zygote_respawn_;
    Respawn child_respawn_;
    Sizing sizing_;
    Clock::time_point recycle_due_{};
    std::minstd_rand random_{std::random_device{}()};
    Refusals refusals_;
    Overtime overtime_;
    Standstill standstill_;
    Clock::time_point standstill_due_{};
    MemoryEvents memory_events_;
    Clock::time_point memory_looked_at_{};
    struct EarlyExit {
        pid_t pid;
        int status;
    };
    void forget_early_exits() noexcept;
    std::vector<EarlyExit> early_exits_;  // reaped before the zygote could report them
    Course course_ = Course::starting;
    Clock::time_point stop_deadline_{};
    int exit_status_ = 0;
    Totals totals_;
    Pace pace_;
    Clock::time_point counted_at_{};
    std::optional<unsigned> backlog_cut_from_;  // by net.core.somaxconn, which was said
    Clock::time_point born_ = Clock::now();
    std::optional<Status::Reload> last_reload_;
    struct StopAsked {
        bool fast;
        Answer answer;
    };
    std::vector<StopAsked> stops_asked_;
    ControlSocket control_socket_;

    boost::asio::io_context loop_{1};
    boost::asio::posix::stream_descriptor poller_handle_{loop_};
    boost::asio::posix::stream_descriptor parent_{loop_};
    int parent_fd_ = -1;  // owned by parent_
    boost::asio::signal_set signals_{loop_};
    boost::asio::steady_timer timer_{loop_};
    Clock::time_point timer_set_for_ = Clock::time_point::max();
    std::unique_ptr<ControlServer> control_;
};

}  // namespace cede::pm
