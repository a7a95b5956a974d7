/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a program gets that was compiled with _FORTIFY_SOURCE. */
extern ssize_t __read_chk(int, void*, size_t, size_t);
extern ssize_t __recv_chk(int, void*, size_t, size_t, int);
extern int __poll_chk(struct pollfd*, nfds_t, int, size_t);

/* A descriptor's number is no matter of comparison. */
#define SHOW_FD(call)                                                                            \
    do {                                                                                         \
        errno = untouched;                                                                       \
        const int result = (call);                                                               \
        append_format(out, "%s: %s, flags %d, errno %d\n", #call, result < 0 ? "refused" : "ok", \
                      result < 0 ? -1 : fcntl(result, F_GETFD), result < 0 ? errno : untouched); \
        close(result);                                                                           \
    } while (0)

static char buffer[64];

static void report_files(struct text* out) {
    const int none = 987654;
    const int directory = open("/", O_RDONLY | O_CLOEXEC);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    int empty[2];
    int broken[2];
    if (pipe2(empty, O_CLOEXEC | O_NONBLOCK) != 0 || pipe2(broken, O_CLOEXEC) != 0) {
        return;
    }
    close(broken[0]);
    SHOW(read(-1, buffer, 4));
    SHOW(read(none, buffer, 4));
    SHOW(read(directory, buffer, 4));
    SHOW(read(null, buffer, 4));
    SHOW(read(zero, buffer, 4));
    SHOW(read(zero, buffer, 0));
    SHOW(read(zero, nowhere, 4));
    SHOW(read(empty[0], buffer, 4));
    SHOW(__read_chk(-1, buffer, 4, sizeof buffer));
    SHOW(__read_chk(zero, buffer, 4, sizeof buffer));
    SHOW(__read_chk(empty[0], buffer, 4, 4));
    SHOW(write(-1, buffer, 4));
    SHOW(write(null, buffer, 4));
    SHOW(write(zero, buffer, 4));
    SHOW(write(empty[1], nowhere, 4));
    SHOW(write(broken[1], buffer, 4));
    SHOW(close(-1));
    SHOW(close(none));
    SHOW(close(broken[1]));
    SHOW(close(broken[1]));
    SHOW(recv(null, buffer, 4, 0));
    SHOW(send(null, buffer, 4, 0));
    SHOW(shutdown(null, SHUT_WR));
    SHOW(accept(null, NULL, NULL));
    close(directory);
    close(null);
    close(zero);
    close(empty[0]);
    close(empty[1]);
}

static void report_sockets(struct text* out) {
    int pair[2];
    int broken[2];
    const int loose = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, broken) != 0) {
        return;
    }
    close(broken[1]);
    SHOW(recv(-1, buffer, 4, 0));
    SHOW(recv(pair[0], buffer, 4, MSG_DONTWAIT));
    SHOW(recv(loose, buffer, 4, 0));
    SHOW(recv(broken[0], buffer, 4, 0));
    SHOW(__recv_chk(-1, buffer, 4, sizeof buffer, 0));
    SHOW(__recv_chk(pair[0], buffer, 4, sizeof buffer, MSG_DONTWAIT));
    SHOW(send(-1, buffer, 4, 0));
    SHOW(send(pair[0], "abcdef", 6, 0));
    SHOW(send(broken[0], buffer, 4, MSG_NOSIGNAL));
    SHOW(send(loose, buffer, 4, MSG_NOSIGNAL));
    SHOW(send(pair[0], nowhere, 4, 0));
    SHOW(recv(pair[1], buffer, 3, MSG_PEEK));
    SHOW(recv(pair[1], nowhere, 3, MSG_PEEK));
    SHOW(__recv_chk(pair[1], buffer, 2, 2, 0));
    SHOW(read(pair[1], buffer, sizeof buffer));
    SHOW(shutdown(-1, SHUT_WR));
    SHOW(shutdown(loose, SHUT_WR));
    SHOW(shutdown(pair[0], 77));
    SHOW(shutdown(pair[0], SHUT_WR));
    SHOW(read(pair[1], buffer, 4));
    SHOW(write(pair[0], buffer, 4));
    close(pair[0]);
    close(pair[1]);
    close(broken[0]);
    close(loose);
}

static void report_accept(struct text* out) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int third = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bind(listener, (struct sockaddr*)&address, sizeof address);
    listen(listener, 8);
    getsockname(listener, (struct sockaddr*)&address, &length);
    SHOW(accept(-1, NULL, NULL));
    SHOW(accept(client, NULL, NULL));
    SHOW(accept(listener, NULL, NULL));
    SHOW(accept4(-1, NULL, NULL, 0));
    SHOW(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    SHOW(accept4(listener, NULL, NULL, 0x40000000));
    connect(client, (struct sockaddr*)&address, sizeof address);
    connect(other, (struct sockaddr*)&address, sizeof address);
    connect(third, (struct sockaddr*)&address, sizeof address);
    SHOW_FD(accept(listener, (struct sockaddr*)&address, &length));
    append_format(out, "length %u, family %d\n", (unsigned)length, address.sin_family);
    SHOW_FD(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    SHOW_FD(accept4(listener, NULL, NULL, 0));
    close(listener);
    close(client);
    close(other);
    close(third);
}

static void on_alarm(int number) {
    (void)number;
}

static void report_poll(struct text* out) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return;
    }
    struct pollfd watched[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = 987654, .events = POLLIN}};
    SHOW(poll(NULL, 0, 0));
    SHOW(poll(watched, 1, 0));
    SHOW(poll(watched, 2, 0));
    append_format(out, "revents %d %d\n", watched[0].revents, watched[1].revents);
    struct pollfd* volatile unknown_size = watched;
    SHOW(poll(unknown_size, 0x7fffffff, 0));
    SHOW(__poll_chk(watched, 1, 0, sizeof watched));
    SHOW(write(ends[1], "x", 1));
    SHOW(poll(watched, 1, -1));
    append_format(out, "revents %d\n", watched[0].revents);
    watched[0].fd = -1;
    SHOW(poll(watched, 1, 0));
    char byte;
    SHOW(read(ends[0], &byte, 1));
    /* Interrupted by a signal whose handler does not restart calls. */
    const struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    watched[0].fd = ends[0];
    setitimer(ITIMER_REAL, &often, NULL);
    SHOW(read(ends[0], &byte, 1));
    SHOW(poll(watched, 1, -1));
    setitimer(ITIMER_REAL, &never, NULL);
    close(ends[0]);
    close(ends[1]);
}

static void on_other(int number) {
    (void)number;
}

/* What a signal's disposition reads as, asked twice: the second answer must be the first. */
static void ask(struct text* out, const char* after, int number) {
    for (int i = 0; i < 2; ++i) {
        struct sigaction now;
        memset(&now, 0x5a, sizeof now);
        errno = untouched;
        const int result = sigaction(number, NULL, &now);
        const char* handler = now.sa_handler == SIG_DFL    ? "default"
                              : now.sa_handler == SIG_IGN  ? "ignored"
                              : now.sa_handler == on_alarm ? "on_alarm"
                              : now.sa_handler == on_other ? "on_other"
                                                           : "unknown";
        append_format(out, "%d after %s: %d, errno %d", number, after, result, errno);
        if (result == 0) {
            append_format(out, ", %s, flags %x, INT %d, USR2 %d", handler,
                          (unsigned)now.sa_flags & ~0x04000000U, sigismember(&now.sa_mask, SIGINT),
                          sigismember(&now.sa_mask, SIGUSR2));
        }
        append_format(out, "\n");
    }
}
#define ASK_AFTER(number, call)                  \
    do {                                         \
        ask(out, "?", number);                   \
        errno = untouched;                       \
        (void)(call);                            \
        append_format(out, "errno %d\n", errno); \
        ask(out, #call, number);                 \
    } while (0)

static void report_signals(struct text* out) {
    struct sigaction action = {.sa_handler = on_other, .sa_flags = SA_RESTART};
    struct sigaction old;
    sigaddset(&action.sa_mask, SIGUSR2);
    for (int number = -1; number < 70; ++number) {
        if (number != SIGUSR1) {
            ask(out, "nothing", number);
        }
    }
    ASK_AFTER(SIGTERM, sigaction(SIGTERM, &action, NULL));
    ASK_AFTER(SIGTERM, sigaction(SIGTERM, &action, &old));
    ASK_AFTER(SIGTERM, signal(SIGTERM, SIG_IGN));
    ASK_AFTER(SIGTERM, signal(SIGTERM, on_alarm));
    ASK_AFTER(SIGTERM, siginterrupt(SIGTERM, 1));
    ASK_AFTER(SIGTERM, ssignal(SIGTERM, on_other));
    ASK_AFTER(SIGTERM, sysv_signal(SIGTERM, on_alarm));
    ASK_AFTER(SIGTERM, sigset(SIGTERM, on_other));
    ASK_AFTER(SIGTERM, sigignore(SIGTERM));
    ASK_AFTER(SIGTERM, signal(SIGTERM, SIG_DFL));
    ASK_AFTER(SIGKILL, signal(SIGKILL, SIG_IGN));
    ASK_AFTER(77, signal(77, SIG_IGN));
    ASK_AFTER(SIGRTMIN, signal(SIGRTMIN, SIG_IGN));
    /* The kernel itself changes this one. */
    action.sa_flags = (int)SA_RESETHAND;
    ASK_AFTER(SIGHUP, sigaction(SIGHUP, &action, NULL));
    ASK_AFTER(SIGHUP, raise(SIGHUP));
    /* Functions of libc that set dispositions for a while. */
    ASK_AFTER(SIGQUIT, system("exit 3"));
    ASK_AFTER(SIGINT, pclose(popen("exit 3", "r")));
    /* What a copy does with its own is its own affair. */
    const pid_t copy = fork();
    if (copy == 0) {
        signal(SIGINT, SIG_IGN);
        sigaction(SIGINT, NULL, &old);
        _exit(old.sa_handler == SIG_IGN ? 0 : 1);
    }
    int status = -1;
    waitpid(copy, &status, 0);
    append_format(out, "copy %d\n", status);
    ask(out, "fork", SIGINT);
    SHOW(sigaction(SIGINT, NULL, NULL));
    signal(SIGRTMIN, SIG_DFL);
}

void report_calls(struct text* out) {
    signal(SIGPIPE, SIG_IGN);
    report_signals(out);
    report_files(out);
    report_sockets(out);
    report_accept(out);
    report_poll(out);
    report_select(out);
}

void report_fault(struct text* out) {
    struct pollfd* volatile wrong = nowhere;
    SHOW(poll(wrong, 1, 0));
    wrong = NULL;
    SHOW(poll(wrong, 1, 0));
    SHOW(poll(wrong, 2, 0));
}
