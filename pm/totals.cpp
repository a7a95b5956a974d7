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

constexpr Field<Counts> each_count[] = {{"requests", &Counts::requests},  {"accepted", &Counts::accepted},
                                        {"taken", &Counts::taken},        {"parked", &Counts::parked},
                                        {"closed", &Counts::closed},      {"refused", &Counts::refused},
                                        {"timed_out", &Counts::timed_out}};

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
                                        {"silent_closed", &Events::silent_closed}};

std::uint64_t add(std::uint64_t a, std::uint64_t b) noexcept {
    return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max()
                                                             : a + b;
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

}  // namespace

const Counts& Totals::look(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    seen_.resize(std::max<std::size_t>(seen_.size(), slot + std::size_t{1}));
    Counts& seen = seen_[slot];
    const std::uint64_t most = most_believed(age);
    for (const auto& [name, member] : each_count) {
        if (claimed.*member <= most) {
            seen.*member = std::max(seen.*member, claimed.*member);
        }
    }
    return seen;
}

void Totals::end(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    look(slot, claimed, age);
    const Counts last = std::exchange(seen_[slot], {});
    for (const auto& [name, member] : each_count) {
        gone_.*member = add(gone_.*member, last.*member);
    }
}

Counts Totals::all() const noexcept {
    Counts sum = gone_;
    for (const Counts& seen : seen_) {
        for (const auto& [name, member] : each_count) {
            sum.*member = add(sum.*member, seen.*member);
        }
    }
    return sum;
}

std::string Totals::save() const {
    json::array children;
    for (const Counts& seen : seen_) {
        children.emplace_back(to_object(seen, each_count));
    }
    const json::object saved{{"gone", to_object(gone_, each_count)},
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
        !from_object(loaded.gone_, *gone, each_count) || !from_object(loaded.events, *happened, each_event)) {
        return false;
    }
    loaded.seen_.resize(children->get_array().size());
    for (std::size_t slot = 0; slot < children->get_array().size(); ++slot) {
        if (!from_object(loaded.seen_[slot], children->get_array()[slot], each_count)) {
            return false;
        }
    }
    *this = std::move(loaded);
    return true;
}

}  // namespace cede::pm
