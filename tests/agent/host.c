/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/host.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* By this symbol the agent knows PHP; its first member is the name. */
struct {
    const char* name;
} sapi_module = {"cgi-fcgi"};

/* Interrupts a call, and lasts until the FIFO named in HOST_GATE opens. */
static void on_signal(int number) {
    const int error = errno;
    const char* gate = getenv("HOST_GATE");
    (void)number;
    if (gate != NULL) {
        close(open(gate, O_RDONLY | O_CLOEXEC));
    }
    errno = error;
}

static int next_connection(void) {
    struct sockaddr_storage address;
    for (;;) {
        socklen_t length = sizeof address;
        const int fd = accept(0, (struct sockaddr*)&address, &length);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            return -1;
        }
        struct pollfd watched = {.fd = fd, .events = POLLIN};
        int ready;
        do {
            errno = 0;
            ready = poll(&watched, 1, 5000);
        } while (ready < 0 && errno == EINTR);
        if (ready > 0 && watched.revents & POLLIN) {
            return fd;
        }
        close(fd);
    }
}

static void end_connection(int fd) {
    char rest[8];
    shutdown(fd, SHUT_WR);
    while (recv(fd, rest, sizeof rest, 0) > 0) {
    }
    close(fd);
}

static void serve(void) {
    int fd = -1;
    for (;;) {
        if (fd < 0 && (fd = next_connection()) < 0) {
            return;
        }
        struct request request;
        if (!read_request(fd, &request)) {
            close(fd);
            fd = -1;
            continue;
        }
        struct text out = {0};
        if (strncmp(request.command, "wait-log", 8) == 0) {
            complain(fd, "a line", strcmp(request.command, "wait-log-behind") == 0);
        }
        if (!carry_out(&request, fd, &out)) {
            _exit(3);
        }
        const bool answered = answer(fd, &out, strcmp(request.command, "split") == 0);
        free(out.bytes);
        free(request.body.bytes);
        if (!answered) {
            close(fd);
            fd = -1;
        } else if (!request.keep) {
            end_connection(fd);
            fd = -1;
        }
    }
}

static void* sleep_for_ever(void* unused) {
    for (;;) {
        pause();
    }
    return unused;
}

int main(int argc, char** argv) {
    append_environment(&environment_at_start);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    const char* how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "--calls") == 0 || strcmp(how, "--fault") == 0) {
        struct text out = {0};
        if (how[2] == 'c') {
            report_calls(&out);
        } else {
            report_fault(&out);
        }
        return write(1, out.bytes, out.size) < 0;
    }
    if (strcmp(how, "--end") == 0) {
        return 0;
    }
    if (strncmp(how, "--lsapi", 7) == 0) {
        sapi_module.name = "litespeed";
        serve_lsapi(strcmp(how, "--lsapi-accept") != 0);
        return 0;
    }
    if (strcmp(how, "--thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
    }
    serve();
    return 0;
}
