/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/agent/calls.h"

static void on_alarm(int number) {
    (void)number;
}

/* Of the descriptors in a pair of sets, which are still there, and what is left of the time. */
static void show_sets(struct text* out, const int* fds, int count, const fd_set* reading,
                      const fd_set* writing, const struct timeval* time) {
    for (int i = 0; i < count; ++i) {
        append_format(out, "%d%d ", FD_ISSET(fds[i], reading) != 0, FD_ISSET(fds[i], writing) != 0);
    }
    append_format(out, "time %d\n", time->tv_sec > 0 || time->tv_usec > 0);
}

static void report_ready(struct text* out, const int* fds, int top) {
    fd_set reading, writing;
    struct timeval time = {0, 0};
    struct timeval long_time = {100, 0};
    FD_ZERO(&reading);
    FD_ZERO(&writing);
    SHOW(select(0, NULL, NULL, NULL, &time));
    SHOW(select(top, &reading, &writing, NULL, &time));
    for (int i = 0; i < 4; ++i) {
        FD_SET(fds[i], &reading);
        FD_SET(fds[i], &writing);
    }
    SHOW(select(top, &reading, &writing, NULL, &long_time));
    show_sets(out, fds, 4, &reading, &writing, &long_time);
    FD_ZERO(&reading);
    FD_ZERO(&writing);
    FD_SET(fds[1], &reading);
    SHOW(select(top, &reading, NULL, NULL, &time));
    show_sets(out, fds, 4, &reading, &writing, &time);
    FD_SET(fds[0], &reading);
    SHOW(select(top, &reading, NULL, &writing, NULL));
    show_sets(out, fds, 4, &reading, &writing, &time);
    /* Beyond the number that was given nothing is looked at. */
    FD_SET(fds[0], &reading);
    SHOW(select(fds[0], &reading, NULL, NULL, &time));
}

static void report_refused(struct text* out, int fd) {
    fd_set set;
    struct timeval time = {0, 0};
    struct timeval before = {-1, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    SHOW(select(-1, &set, NULL, NULL, &time));
    SHOW(select(fd + 1, &set, NULL, NULL, &before));
    SHOW(select(fd + 1, nowhere, NULL, NULL, &time));
    SHOW(select(fd + 1, &set, nowhere, NULL, &time));
    const int closed = dup(fd);
    close(closed);
    FD_ZERO(&set);
    SHOW(select(closed + 1, &set, NULL, NULL, &time));
    FD_SET(closed, &set);
    SHOW(select(closed + 1, &set, NULL, NULL, &time));
}

static void report_interrupted(struct text* out, int fd) {
    fd_set set;
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    SHOW(select(fd + 1, &set, NULL, NULL, NULL));
    setitimer(ITIMER_REAL, &never, NULL);
}

static void report_writev(struct text* out, const int* fds) {
    char bytes[8] = "abcdefg";
    struct iovec parts[3] = {{bytes, 3}, {NULL, 0}, {bytes + 3, 4}};
    struct iovec wrong[2] = {{bytes, 2}, {nowhere, 4}};
    char back[16] = "";
    struct iovec* volatile unknown_size = parts;
    volatile int fewer = -1;
    SHOW(writev(-1, parts, 3));
    SHOW(writev(987654, parts, 3));
    SHOW(writev(fds[2], parts, 0));
    SHOW(writev(fds[2], parts, fewer));
    SHOW(writev(fds[2], unknown_size, 5000));
    SHOW(writev(fds[2], nowhere, 1));
    SHOW(writev(fds[2], parts, 3));
    SHOW(recv(fds[3], back, sizeof back, MSG_DONTWAIT));
    append_format(out, "%.7s\n", back);
    SHOW(writev(fds[2], wrong, 2));
    SHOW(recv(fds[3], back, sizeof back, MSG_DONTWAIT));
    SHOW(writev(fds[0], parts, 3));
    const int full = fcntl(fds[2], F_SETFL, O_NONBLOCK);
    static char much[100000];
    struct iovec large = {much, sizeof much};
    while (writev(fds[2], &large, 1) > 0) {
    }
    append_format(out, "full %d errno %d\n", full, errno);
    close(fds[3]);
    SHOW(writev(fds[2], parts, 3));
}

void report_select(struct text* out) {
    /* A pipe with something in it, an empty one's ends are never ready or always; a pair of sockets. */
    int ends[2];
    int pair[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        write(ends[1], "x", 1) != 1) {
        return;
    }
    const int fds[4] = {ends[0], ends[1], pair[0], pair[1]};
    int top = 0;
    for (int i = 0; i < 4; ++i) {
        top = top > fds[i] ? top : fds[i] + 1;
    }
    report_ready(out, fds, top);
    report_refused(out, pair[0]);
    report_interrupted(out, pair[0]);
    report_writev(out, fds);
    close(ends[0]);
    close(ends[1]);
    close(pair[0]);
}
