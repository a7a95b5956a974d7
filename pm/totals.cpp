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

constexpr std::uint64_t Counts::*each_count[] = {&Counts::requests, &Counts::accepted, &Counts::taken,
                                                 &Counts::parked,   &Counts::closed,   &Counts::refused};
using Events = Totals::Events;
constexpr std::uint64_t Events::*each_event[] = {&Events::started, &Events::ended, &Events::killed,
                                                 &Events::reloads, &Events::upgrades};

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
json::array to_array(const T& value, std::uint64_t T::*const (&fields)[N]) {
    json::array array;
    for (const auto field : fields) {
        array.emplace_back(value.*field);
    }
    return array;
}

template <typename T, std::size_t N>
bool from_array(T& value, const json::value& array, std::uint64_t T::*const (&fields)[N]) {
    if (!array.is_array() || array.get_array().size() != N) {
        return false;
    }
    for (std::size_t i = 0; i < N; ++i) {
        boost::system::error_code error;
        value.*fields[i] = array.get_array()[i].to_number<std::uint64_t>(error);
        if (error) {
            return false;
        }
    }
    return true;
}

}  // namespace

const Counts& Totals::look(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    seen_.resize(std::max<std::size_t>(seen_.size(), slot + std::size_t{1}));
    Counts& seen = seen_[slot];
    const std::uint64_t most = most_believed(age);
    for (const auto field : each_count) {
        if (claimed.*field <= most) {
            seen.*field = std::max(seen.*field, claimed.*field);
        }
    }
    return seen;
}

void Totals::end(std::uint32_t slot, const Counts& claimed, std::chrono::nanoseconds age) {
    look(slot, claimed, age);
    const Counts last = std::exchange(seen_[slot], {});
    for (const auto field : each_count) {
        gone_.*field = add(gone_.*field, last.*field);
    }
}

Counts Totals::all() const noexcept {
    Counts sum = gone_;
    for (const Counts& seen : seen_) {
        for (const auto field : each_count) {
            sum.*field = add(sum.*field, seen.*field);
        }
    }
    return sum;
}

std::string Totals::save() const {
    json::array children;
    for (const Counts& seen : seen_) {
        children.emplace_back(to_array(seen, each_count));
    }
    const json::object saved{{"gone", to_array(gone_, each_count)},
                             {"events", to_array(events, each_event)},
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
        !from_array(loaded.gone_, *gone, each_count) || !from_array(loaded.events, *happened, each_event)) {
        return false;
    }
    loaded.seen_.resize(children->get_array().size());
    for (std::size_t slot = 0; slot < children->get_array().size(); ++slot) {
        if (!from_array(loaded.seen_[slot], children->get_array()[slot], each_count)) {
            return false;
        }
    }
    *this = std::move(loaded);
    return true;
}

}  // namespace cede::pm
