// SPDX-License-Identifier: Apache-2.0
// The exported wrappers of all of libc's functions that ask for or set a signal's disposition.
#include <dlfcn.h>
#include <signal.h>

#include "children/agent/dispositions.h"
#include "children/agent/libc.h"

#define CEDE_EXPORT extern "C" __attribute__((visibility("default")))

using cede::agent::forget_disposition;

namespace {

using Handler = void (*)(int);

// Setting one is rare: its original is looked up each time.
template <typename Result, typename... Arguments>
Result set_through(const char* name, int number, Arguments... arguments) noexcept {
    forget_disposition(number);
    const auto original = reinterpret_cast<Result (*)(int, Arguments...)>(dlsym(RTLD_NEXT, name));
    const Result result = original(number, arguments...);
    forget_disposition(number);  // a handler may have asked in between
    return result;
}

}  // namespace

CEDE_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
    if (action == nullptr && old != nullptr && cede::agent::known_disposition(number, old)) {
        return 0;
    }
    if (action != nullptr && old == nullptr && cede::agent::in_force(number, *action)) {
        return 0;
    }
    const int result = cede::agent::libc().sigaction(number, action, old);
    if (action != nullptr) {
        forget_disposition(number);
    } else if (result == 0 && old != nullptr) {
        cede::agent::learn_disposition(number, *old);
    }
    return result;
}

CEDE_EXPORT Handler signal(int number, Handler handler) noexcept {
    return set_through<Handler>("signal", number, handler);
}
CEDE_EXPORT Handler ssignal(int number, Handler handler) noexcept {
    return set_through<Handler>("ssignal", number, handler);
}
CEDE_EXPORT Handler bsd_signal(int number, Handler handler) noexcept {
    return set_through<Handler>("bsd_signal", number, handler);
}
CEDE_EXPORT Handler sysv_signal(int number, Handler handler) noexcept {
    return set_through<Handler>("sysv_signal", number, handler);
}
CEDE_EXPORT Handler __sysv_signal(int number, Handler handler) noexcept {
    return set_through<Handler>("__sysv_signal", number, handler);
}
CEDE_EXPORT Handler sigset(int number, Handler handler) noexcept {
    return set_through<Handler>("sigset", number, handler);
}
CEDE_EXPORT int sigignore(int number) noexcept {
    return set_through<int>("sigignore", number);
}
CEDE_EXPORT int siginterrupt(int number, int on) noexcept {
    return set_through<int>("siginterrupt", number, on);
}
