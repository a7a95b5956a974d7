// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <span>
#include <sys/resource.h>

#include "tests/bench/modes.h"

namespace {

using namespace cede::bench;

// Each request needs a descriptor; the soft limit is 1024 in most shells.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

JsonObject run(const Options& options) {
    switch (options.mode) {
        case Mode::closed:
            return run_closed(options);
        case Mode::burst:
            return run_burst(options);
        case Mode::bursts:
            return run_bursts(options);
        case Mode::rate:
            return run_rate(options);
        case Mode::new_connection:
            return run_new_connection(options);
        case Mode::idle:
            return run_idle(options);
        case Mode::groups:
            return run_groups(options);
        case Mode::leavers:
            return run_leavers(options);
        case Mode::overload:
            return run_overload(options);
        case Mode::slow:
            return run_slow(options);
        case Mode::probe:
            return run_probe(options);
    }
    throw UsageError("no mode");
}

}  // namespace

// Exit status: 0 with a result, whatever it says; 2 for usage, 1 if there is no result.
int main(int argc, char** argv) {
    try {
        const auto options =
            parse_options(std::span{argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
        if (!options) {
            std::fputs(usage(), stdout);
            return 0;
        }
        raise_descriptor_limit();
        std::puts(run(*options).text().c_str());
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "cede-load: %s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cede-load: %s\n", error.what());
        return 1;
    }
}
