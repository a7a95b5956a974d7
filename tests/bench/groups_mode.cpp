// SPDX-License-Identifier: Apache-2.0
// Groups of clients that start one after another, and how much of their work each second is done on kept
// connections.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <queue>
#include <vector>

#include "tests/bench/modes.h"

namespace cede::bench {

namespace {

struct Second {
    std::uint64_t kept = 0;  // answers on a connection that had had one
    std::uint64_t anew = 0;  // answers that were the first on their connection
    std::uint64_t failures = 0;

    [[nodiscard]] std::uint64_t answers() const noexcept { return kept + anew; }
    // Per cent; 0 without answers.
    [[nodiscard]] double share() const noexcept {
        return answers() == 0 ? 0 : 100 * static_cast<double>(kept) / static_cast<double>(answers());
    }
    void add(const Second& other) noexcept {
        kept += other.kept;
        anew += other.anew;
        failures += other.failures;
    }
};

struct Group {
    std::vector<Second> seconds;
    Nanoseconds started = 0;
    Nanoseconds first_answer = 0;     // of anyone in it
    Nanoseconds everyones_first = 0;  // the latest first answer of any of its clients
    std::uint32_t answered_clients = 0;
    Tally tally;

    [[nodiscard]] Second all() const noexcept {
        Second sum;
        for (const Second& each : seconds) {
            sum.add(each);
        }
        return sum;
    }
};

class Groups final : public Listener {
  public:
    Groups(Engine& engine, const Options& options)
        : engine_(engine),
          options_(options),
          request_(web_server(options.protocol).build_request(options.script, options.keep_alive)),
          answered_(std::size_t{options.groups} * options.clients),
          groups_(options.groups) {
        const auto seconds_in_all = static_cast<std::size_t>((options.duration + second - 1) / second);
        for (Group& group : groups_) {
            group.seconds.resize(seconds_in_all);
        }
    }

    void run() {
        begin_ = now();
        end_ = begin_ + options_.duration;
        for (SlotIndex slot = 0; slot < answered_.size(); ++slot) {
            const std::uint32_t group = slot / options_.clients;
            groups_[group].started = begin_ + group * options_.stagger;
            due_.push({groups_[group].started, slot});
        }
        while (now() < end_) {
            start_due();
            engine_.step(*this, due_.empty() ? end_ : std::min(end_, due_.top().at));
        }
        over_ = true;
        const Nanoseconds last = now() + options_.patience + second;
        while (engine_.under_way() > 0 && now() < last) {
            engine_.step(*this, last);
        }
    }

    void finished(const Finished& what) override {
        if (over_) {
            return;
        }
        Group& group = groups_[what.slot / options_.clients];
        // One step can bring answers from behind the end.
        const auto at = static_cast<std::size_t>((what.at - begin_) / second);
        Second& now_second = group.seconds[std::min(at, group.seconds.size() - 1)];
        group.tally.add(what);
        if (what.failure != Failure::none) {
            ++now_second.failures;
        } else {
            ++(what.reused ? now_second.kept : now_second.anew);
            note_first(group, what);
        }
        // A client that is refused at once must not come back at once.
        const Nanoseconds rest =
            what.failure == Failure::none ? options_.think : std::max(options_.think, 100 * millisecond);
        due_.push({what.at + rest, what.slot});
    }

    [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }

  private:
    struct Due {
        Nanoseconds at;
        SlotIndex slot;
        bool operator>(const Due& other) const noexcept { return at > other.at; }
    };

    void note_first(Group& group, const Finished& what) {
        if (answered_[what.slot]) {
            return;
        }
        answered_[what.slot] = true;
        const Nanoseconds waited = what.at - group.started;
        group.first_answer = group.answered_clients == 0 ? waited : group.first_answer;
        group.everyones_first = waited;
        ++group.answered_clients;
    }

    void start_due() {
        for (const Nanoseconds at = now(); !due_.empty() && due_.top().at <= at; due_.pop()) {
            const Due next = due_.top();
            engine_.start(next.slot, 0, Use::own, request_, next.at);
        }
    }

    Engine& engine_;
    const Options& options_;
    std::vector<std::byte> request_;
    std::vector<bool> answered_;
    std::vector<Group> groups_;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    Nanoseconds begin_ = 0;
    Nanoseconds end_ = 0;
    bool over_ = false;
};

// For a reader; the object on the standard output has the same.
void print_table(const std::vector<Group>& groups) {
    std::fputs("     ", stderr);
    for (std::size_t each = 0; each < groups.size(); ++each) {
        std::fprintf(stderr, " | group %zu: answers kept %%   new fail", each + 1);
    }
    std::fputs("\n", stderr);
    for (std::size_t at = 0; at < groups.front().seconds.size(); ++at) {
        std::fprintf(stderr, "%3zu s", at + 1);
        for (const Group& group : groups) {
            const Second& each = group.seconds[at];
            std::fprintf(stderr, " |         %8llu %6.1f %5llu %4llu",
                         static_cast<unsigned long long>(each.answers()), each.share(),
                         static_cast<unsigned long long>(each.anew),
                         static_cast<unsigned long long>(each.failures));
        }
        std::fputs("\n", stderr);
    }
}

void describe(JsonObject& into, const Second& what) {
    into.add("answers", what.answers()).add("kept_percent", what.share());
    into.add("new_connections", what.anew).add("failures", what.failures);
}

JsonObject describe(const Group& group, std::uint32_t clients, Nanoseconds begin, Nanoseconds window) {
    JsonObject result;
    bench::describe(result, group.tally, begin, window);
    describe(result, group.all());
    result.add_ms("first_answer_ms", group.first_answer).add_ms("everyones_first_ms", group.everyones_first);
    result.add("never_served", std::uint64_t{clients - group.answered_clients});
    std::vector<JsonObject> seconds;
    for (const Second& each : group.seconds) {
        describe(seconds.emplace_back(), each);
    }
    return result.add("seconds", seconds);
}

}  // namespace

JsonObject run_groups(const Options& options) {
    Engine engine{engine_settings(options, options.groups * options.clients)};
    Groups groups{engine, options};
    const Nanoseconds begin = now();
    groups.run();
    if (options.table) {
        print_table(groups.groups());
    }
    Second all;
    // Without those in which a group begins: nobody's first request is on a kept connection.
    Second steady;
    std::uint64_t never_served = 0;
    Nanoseconds slowest_first = 0;
    std::vector<JsonObject> each;
    const auto settled = static_cast<std::size_t>((options.groups * options.stagger) / second) + 1;
    for (const Group& group : groups.groups()) {
        all.add(group.all());
        for (std::size_t at = settled; at < group.seconds.size(); ++at) {
            steady.add(group.seconds[at]);
        }
        never_served += options.clients - group.answered_clients;
        slowest_first = std::max(slowest_first, group.first_answer);
        each.push_back(describe(group, options.clients, begin, options.duration));
    }
    JsonObject result;
    result.add("ok", all.answers());
    describe(result, all);
    result.add("steady_kept_percent", steady.share()).add("never_served", never_served);
    result.add_ms("slowest_first_answer_ms", slowest_first);
    bench::describe(result, engine.counters());
    return result.add("groups", each);
}

}  // namespace cede::bench
