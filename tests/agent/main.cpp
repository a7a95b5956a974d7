// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <sys/prctl.h>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
    // As the supervisor: children of the zygote are ours to wait for.
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    std::signal(SIGPIPE, SIG_IGN);
    doctest::Context context{argc, argv};
    return context.run();
}
