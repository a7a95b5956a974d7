// SPDX-License-Identifier: Apache-2.0
// The exported wrappers of all of libc's functions that ask for or set a signal's disposition.
#include <dlfcn.h>
#include <signal.h>
#include <type_traits>

#include "children/agent/dispositions.h"
#include "children/agent/libc.h"
#include "children/agent/overtime.h"

#define CEDE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Handler = void (*)(int);

// Setting one is rare: its original is looked up each time.
template <typename Result, typename... Arguments>
Result set_through(const char* name, int number, Arguments... arguments) noexcept {
    const unsigned begun = cede::agent::begin_setting(number);
    const auto original = reinterpret_cast<Result (*)(int, Arguments...)>(dlsym(RTLD_NEXT, name));
    const Result result = original(number, arguments...);
    cede::agent::end_setting(number, begun, nullptr);
    if constexpr (std::is_same_v<Result, Handler>) {
        return cede::agent::overtime_set(number, result);
    } else {
        (void)cede::agent::overtime_set(number, nullptr);
        return result;
    }
}

}  // namespace

CEDE_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
    int overtime_result = 0;
    if (cede::agent::overtime_disposition(number, action, old, overtime_result)) {
        return overtime_result;
    }
    if (action == nullptr && old != nullptr && cede::agent::known_disposition(number, old)) {
        return 0;
    }
    if (action != nullptr && old == nullptr && cede::agent::in_force(number, *action)) {
        return 0;
    }
    if (action == nullptr) {
        const unsigned before = cede::agent::settings_made();
        const int result = cede::agent::libc().sigaction(number, action, old);
        if (result == 0 && old != nullptr) {
            cede::agent::learn_disposition(number, *old, before);
        }
        return result;
    }
    const unsigned begun = cede::agent::begin_setting(number);
    const struct sigaction wanted = *action;  // `old` may be the same place
    const int result = cede::agent::libc().sigaction(number, action, old);
    cede::agent::end_setting(number, begun, result == 0 ? &wanted : nullptr);
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
