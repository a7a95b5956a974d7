/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/agent/host.h"

/* As the kernel has it, past libc: linux/signal.h's struct. */
struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static void first(int number) {
    (void)number;
}
static void second(int number) {
    (void)number;
}

static void* kernel_handler(int number) {
    struct kernel_action action = {0};
    syscall(SYS_rt_sigaction, number, NULL, &action, sizeof action.mask);
    return (void*)action.handler;
}

/* What sigaction(2) says must be what the kernel has, asked twice, for the second may be answered from
 * memory. */
static void compare(struct text* out, const char* how, int number) {
    for (int again = 0; again < 2; ++again) {
        struct sigaction asked;
        memset(&asked, 0, sizeof asked);
        const int result = sigaction(number, NULL, &asked);
        append_format(out, "%s %s\n", how,
                      result == 0 && (void*)asked.sa_handler == kernel_handler(number) ? "same" : "DIFFERS");
    }
}

static void set(int number, void (*handler)(int), int flags, int blocked) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    if (blocked != 0) {
        sigaddset(&action.sa_mask, blocked);
    }
    sigaction(number, &action, NULL);
}

static unsigned long kernel_word(int number, int which) {
    struct kernel_action action = {0};
    syscall(SYS_rt_sigaction, number, NULL, &action, sizeof action.mask);
    return which == 0 ? action.flags : action.mask;
}

void report_dispositions(struct text* out) {
    const int number = SIGUSR2;
    compare(out, "untouched", number);
    set(number, first, 0, 0);
    compare(out, "sigaction", number);
    /* The same again does nothing; the same handler with other flags or another mask does. */
    set(number, first, 0, 0);
    compare(out, "sigaction-same", number);
    set(number, first, SA_RESTART, 0);
    append_format(out, "flags %s\n", (kernel_word(number, 0) & SA_RESTART) != 0 ? "set" : "LOST");
    compare(out, "sigaction-flags", number);
    set(number, first, SA_RESTART, SIGWINCH);
    append_format(out, "mask %s\n", (kernel_word(number, 1) & (1UL << (SIGWINCH - 1))) != 0 ? "set" : "LOST");
    compare(out, "sigaction-mask", number);
    signal(number, second);
    compare(out, "signal", number);
    ssignal(number, first);
    compare(out, "ssignal", number);
    sysv_signal(number, second);
    compare(out, "sysv_signal", number);
    raise(number); /* which the kernel has reset by that: SA_RESETHAND */
    compare(out, "reset", number);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    sigset(number, first);
    compare(out, "sigset", number);
    siginterrupt(number, 1);
    compare(out, "siginterrupt", number);
    sigignore(number);
    compare(out, "sigignore", number);
#pragma GCC diagnostic pop
    signal(number, SIG_DFL);
    compare(out, "default", number);
    struct sigaction old;
    append_format(out, "wrong number %d\n", sigaction(10000, NULL, &old));
}

static const char* name_of(const void* handler) {
    return handler == (void*)SIG_DFL ? "default" : handler == (void*)first ? "first" : "UNKNOWN";
}

void report_hidden_signal(struct text* out) {
    const int number = 61; /* children::overtime_signal */
    struct sigaction asked;
    sigaction(number, NULL, &asked);
    append_format(out, "sigaction %s %d\n", name_of((void*)asked.sa_handler), asked.sa_flags);
    append_format(out, "kernel %s\n", name_of(kernel_handler(number)));
    append_format(out, "signal %s\n", name_of((void*)signal(number, first)));
    sigaction(number, NULL, &asked);
    append_format(out, "sigaction %s\n", name_of((void*)asked.sa_handler));
    append_format(out, "kernel %s\n", name_of(kernel_handler(number)));
    append_format(out, "signal %s\n", name_of((void*)signal(number, SIG_DFL)));
    append_format(out, "signal %s\n", name_of((void*)signal(number, SIG_DFL)));
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = first;
    sigaction(number, &action, &asked);
    append_format(out, "sigaction %s %d\n", name_of((void*)asked.sa_handler), asked.sa_flags);
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, &asked);
    append_format(out, "sigaction %s\n", name_of((void*)asked.sa_handler));
    siginterrupt(number, 1);
    append_format(out, "restarts %d\n", (kernel_word(number, 0) & SA_RESTART) != 0);
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(kernel_handler(number) == (void*)SIG_DFL ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    append_format(out, "copy %d\n", status);
}
