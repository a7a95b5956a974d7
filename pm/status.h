// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "pm/pace.h"
#include "pm/totals.h"

namespace cede::pm {

// What `cede status` tells: one look at everything, in which the sums are those of the parts.
// docs/control.md has the names and units of the JSON.
struct Status {
    using Seconds = std::chrono::duration<double>;

    struct Listener {
        std::string address;
        std::uint64_t queue = 0;
        std::uint64_t backlog = 0;  // as granted
        std::uint64_t backlog_asked = 0;
        Seconds full{};  // for how long its queue was, since this program was started
        std::uint64_t times_full = 0;
    };
    struct Saturation {
        std::optional<Seconds> since;  // so long ago requests began to wait, and they do still
        Seconds lasted{};              // in all
        std::uint64_t times = 0;
        std::uint64_t requests = 0;  // that had to wait
        std::uint64_t moments = 0;   // shorter than an event
    };
    struct Child {
        std::uint32_t slot = 0;
        pid_t pid = 0;
        std::uint32_t generation = 0;
        std::string_view state;  // one of child_states()
        bool leaving = false;    // told to end
        std::uint64_t requests = 0;
        Seconds age{};
        std::optional<Seconds> idle;       // free or idle for as long
        std::optional<std::uint64_t> rss;  // bytes
    };
    struct Reload {
        std::chrono::system_clock::time_point at{};
        Seconds duration{};
        bool good = false;
        std::string message;
    };

    std::string version;
    pid_t pid = 0;
    std::string title;
    std::string_view course;  // starting, serving, draining, stopping
    Seconds uptime{};
    std::uint32_t generation = 0;
    std::string_view protocol;
    std::string_view pool_mode;
    std::uint64_t limit = 0;              // children at the most
    std::optional<std::uint64_t> wanted;  // where it is a fixed number
    std::vector<Listener> listeners;
    std::vector<Child> children;

    std::uint64_t handed = 0;   // parked connections with a request, that wait for a child
    std::string_view pressure;  // nobody, attention, pressure: what the children are told of waiters
    std::uint64_t parked = 0;
    std::uint64_t leaving = 0;  // connections whose peers were told to close them
    Seconds oldest{};           // for so long who is first in the listen queues has waited
    Saturation saturation;
    std::optional<Pace::Recent> recent;
    bool backlog_auto = false;
    std::optional<double> capacity;  // requests a second, where the backlog depends on it

    Counts totals;
    Totals::Events events;
    std::optional<Reload> last_reload;
};

// The words for a child's state, in the order of a child's life. The last is for a slot that says nonsense.
[[nodiscard]] std::vector<std::string_view> child_states();

[[nodiscard]] std::string status_json(const Status& status);

// The same for people, in lines, from the JSON of any version: what is missing there is missing here. Free of
// control characters, whatever the JSON has in it. The error: it is no JSON object.
[[nodiscard]] std::expected<std::string, std::string> status_text(std::string_view json);

// `text` without what a terminal would act upon; line feeds stay.
[[nodiscard]] std::string for_terminal(std::string_view text);

}  // namespace cede::pm
