// SPDX-License-Identifier: Apache-2.0
#include "pm/totals.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace cede::pm {
namespace {

namespace json = boost::json;

template <typename T>
struct Field {
    json::string_view name;
    std::uint64_t T::*member;
};

constexpr Field<Counts> each_count[] = {{"requests", &Counts::requests},
                                        {"accepted", &Counts::accepted},
                                        {"taken", &Counts::taken},
                                        {"parked", &Counts::parked},
                                        {"closed", &Counts::closed},
                                        {"refused", &Counts::refused},
                                        {"timed_out", &Counts::timed_out},
                                        {"begun", &Counts::begun},
                                        {"abandoned", &Counts::abandoned},
                                        {"overdue", &Counts::overdue},
                                        {"pings", &Counts::pings},
                                        {"bodies_timed_out", &Counts::bodies_timed_out},
                                        {"writes_timed_out", &Counts::writes_timed_out},
                                        {"busy_us", &Counts::busy_us}};
// Those that are believed otherwise.
constexpr Field<Counts> each_time[] = {{"waited_us", &Counts::waited_us},
                                       {"longest_wait_us", &Counts::longest_wait_us}};
constexpr json::string_view waits_name = "waits";
constexpr std::uint64_t longest_believed_us = 86'400'000'000;

using Events = Totals::Events;
constexpr Field<Events> each_event[] = {{"started", &Events::started},
                                        {"ended", &Events::ended},
                                        {"killed", &Events::killed},
                                        {"killed_for_memory", &Events::killed_for_memory},
                                        {"not_started", &Events::not_started},
                                        {"reloads", &Events::reloads},
                                        {"upgrades", &Events::upgrades},
                                        {"give_ups_asked", &Events::give_ups_asked},
                                        {"closed_for_room", &Events::closed_for_room},
                                        {"peers_gone", &Events::peers_gone},
                                        {"lost_log_lines", &Events::lost_log_lines},
                                        {"longest_queue", &Events::longest_queue},
                                        {"abandoned", &Events::abandoned},
                                        {"overdue", &Events::overdue},
                                        {"pings", &Events::pings},
                                        {"pulled", &Events::pulled},
                                        {"heads_too_slow", &Events::heads_too_slow},
                                        {"bodies_too_slow", &Events::bodies_too_slow},
                                        {"silent_closed", &Events::silent_closed},
                                        {"saturated_ms", &Events::saturated_ms},
                                        {"saturations", &Events::saturations},
                                        {"saturated_waits", &Events::saturated_waits},
                                        {"saturated_moments", &Events::saturated_moments}};

std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max()
                                                             : a + b;
}

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) noexcept {
    return b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b
               ? std::numeric_limits<std::uint64_t>::max()
               : a * b;
}

// More than any child can do: what claims more is garbage.
std::uint64_t most_believed(std::chrono::nanoseconds age) noexcept {
    constexpr std::uint64_t at_once = 1000;
    const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(age).count();
    return at_once + static_cast<std::uint64_t>(std::max<std::int64_t>(microseconds, 0));
}

template <typename T, std::size_t N>
json::object to_object(const T& value, const Field<T> (&fields)[N]) {
    json::object object;
    for (const auto& [name, member] : fields) {
        object[name] = value.*member;
    }
    return object;
}

template <typename T, std::size_t N>
bool from_object(T& value, const json::value& saved, const Field<T> (&fields)[N]) {
    if (!saved.is_object()) {
        return false;
    }
    for (const auto& [name, member] : fields) {
        if (const json::value* const found = saved.get_object().if_contains(name)) {
            boost::system::error_code error;
            value.*member = found->to_number<std::uint64_t>(error);
            if (error) {
                return false;
            }
        }
    }
    return true;
}

void add_to(Counts& sum, const Counts& more) noexcept {
    for (const auto& [name, member] : each_count) {
        sum.*member = add(sum.*member, more.*member);
    }
    for (std::size_t i = 0; i < sum.waits.size(); ++i) {
        sum.waits[i] = add(sum.waits[i], more.waits[i]);
    }
    sum.waited_us = add(sum.waited_us, more.waited_us);
    sum.longest_wait_us = std::max(sum.longest_wait_us, more.longest_wait_us);
}

json::object saved_counts(const Counts& counts) {
    json::object object = to_object(counts, each_count);
    for (const auto& [name, member] : each_time) {
        object[name] = counts.*member;
    }
    object[waits_name] = json::array(counts.waits.begin(), counts.waits.end());
    return object;
}

bool load_counts(Counts& counts, const json::value& saved) {
    if (!from_object(counts, saved, each_count) || !from_object(counts, saved, each_time)) {
        return false;
    }
    const json::value* const waits = saved.get_object().if_contains(waits_name);
    if (waits == nullptr) {
        return true;
    }
    // Of a version with other bounds they say nothing.
    if (!waits->is_array() || waits->get_array().size() != counts.waits.size()) {
        return waits->is_array();
    }
    for (std::size_t i = 0; i < counts.waits.size(); ++i) {
        boost::system::error_code error;
        counts.waits[i] = waits->get_array()[i].to_number<std::uint64_t>(error);
        if (error) {
            return false;
        }
    }
    return true;
}

}  // namespace

std::uint64_t Counts::waits_known() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t bucket : waits) {
        sum = add(sum, bucket);
    }
    return sum;
}

const Counts& Totals::look(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    seen_.resize(std::max<std::size_t>(seen_.size(), slot + std::size_t{1}));
    Counts& seen = seen_[slot];
    const auto believe = [](std::uint64_t& value, std::uint64_t claim, std::uint64_t most) {
        value = claim <= most ? std::max(value, claim) : value;
    };
    const std::uint64_t most = most_believed(age);
    for (const auto& [name, member] : each_count) {
        believe(seen.*member, claimed.*member, most);
    }
    for (std::size_t i = 0; i < seen.waits.size(); ++i) {
        believe(seen.waits[i], claimed.waits[i], most);
    }
    believe(seen.longest_wait_us, claimed.longest_wait_us, longest_believed_us);
    believe(seen.waited_us, claimed.waited_us, multiply(seen.waits_known(), seen.longest_wait_us));
    return seen;
}

void Totals::end(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    look(slot, claimed, age);
    add_to(gone_, std::exchange(seen_[slot], {}));
}

Counts Totals::all() const noexcept {
    Counts sum = gone_;
    for (const Counts& seen : seen_) {
        add_to(sum, seen);
    }
    return sum;
}

std::string Totals::save() const {
    json::array children;
    for (const Counts& seen : seen_) {
        children.emplace_back(saved_counts(seen));
    }
    const json::object saved{{"gone", saved_counts(gone_)},
                             {"events", to_object(events, each_event)},
                             {"children", std::move(children)}};
    return json::serialize(saved);
}

bool Totals::load(std::string_view saved) {
    boost::system::error_code error;
    const json::value value = json::parse({saved.data(), saved.size()}, error);
    if (error || !value.is_object()) {
        return false;
    }
    const json::object& object = value.get_object();
    const json::value* const gone = object.if_contains("gone");
    const json::value* const happened = object.if_contains("events");
    const json::value* const children = object.if_contains("children");
    Totals loaded;
    if (gone == nullptr || happened == nullptr || children == nullptr || !children->is_array() ||
        !load_counts(loaded.gone_, *gone) || !from_object(loaded.events, *happened, each_event)) {
        return false;
    }
    loaded.seen_.resize(children->get_array().size());
    for (std::size_t slot = 0; slot < children->get_array().size(); ++slot) {
        if (!load_counts(loaded.seen_[slot], children->get_array()[slot])) {
            return false;
        }
    }
    *this = std::move(loaded);
    return true;
}

}  // namespace cede::pm
