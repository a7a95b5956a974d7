/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/lsapi.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int listener_number = 0;
struct text run_on_report;

static pid_t parent;
static int most_idle = 300;

static void on_stop(int number) {
    (void)number;
    running = 0;
}

static void set_blocking(int fd, bool blocking) {
    const int flags = fcntl(fd, F_GETFL, 0);
    if (!(flags & O_NONBLOCK) != blocking) {
        fcntl(fd, F_SETFL, flags ^ O_NONBLOCK);
    }
}

/* The script goes on without its connection, whose number it gets for files of its own. */
static void run_on(const char* gate, int number) {
    int pair[2];
    char back[2 * header_size];
    unsigned char end[2 * header_size];
    struct iovec part = {end, sizeof end};
    struct timeval no_time = {0, 0};
    fd_set set;
    put_header(end, resp_end, 0);
    put_header(end + header_size, conn_close, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return;
    }
    run_on_report.size = 0;
    append_format(&run_on_report, "same %d\n", pair[0] == number);
    append_format(&run_on_report, "writev %zd\n", writev(pair[0], &part, 1));
    FD_ZERO(&set);
    FD_SET(pair[1], &set);
    append_format(&run_on_report, "select %d\n", select(pair[1] + 1, &set, NULL, NULL, &no_time));
    append_format(&run_on_report, "read %zd\n", read(pair[1], back, sizeof back));
    append_format(&run_on_report, "write %zd\n", write(pair[1], back, sizeof back));
    FD_ZERO(&set);
    FD_SET(pair[0], &set);
    append_format(&run_on_report, "select %d\n", select(pair[0] + 1, &set, NULL, NULL, &no_time));
    append_format(&run_on_report, "read %zd\n", read(pair[0], back, sizeof back));
    if (*gate != '\0') {
        wait_at(gate);
    }
    append_format(&run_on_report, "close %d\n", close(pair[0]));
    close(pair[1]);
}

/* False: the process is to end. */
static bool wait_for(int fd) {
    int idle = 0;
    while (running) {
        fd_set set;
        struct timeval second = {1, 0};
        FD_ZERO(&set);
        FD_SET(fd, &set);
        const ssize_t ready = noted(fd == connection ? "select connection" : "select listener",
                                    select(fd + 1, &set, NULL, NULL, &second));
        if (ready > 0) {
            return FD_ISSET(fd, &set);
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
        if (ready == 0 && (++idle >= most_idle || getppid() != parent)) {
            return false;
        }
    }
    return false;
}

/* -1: there was none after all. -2: the process is to end. */
static int take_connection(void) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    const int yes = 1;
    const int fd = (int)noted("accept", accept(listener_number, (struct sockaddr*)&address, &length));
    if (fd < 0) {
        return errno == EINTR || errno == EAGAIN ? -1 : -2;
    }
    if (address.ss_family == AF_INET) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    set_blocking(fd, true);
    return fd;
}

static bool next_request(struct request* request, bool select_first) {
    while (running) {
        if (connection < 0) {
            if (listener_number < 0 || (select_first && !wait_for(listener_number))) {
                return false;
            }
            const int fd = take_connection();
            if (fd == -2) {
                return false;
            }
            connection = fd;
            continue;
        }
        if (!wait_for(connection)) {
            return false;
        }
        unsigned char received[header_size];
        put_header(received, req_received, 0);
        if (take_head(request) &&
            noted("write", write(connection, received, sizeof received)) == header_size) {
            return true;
        }
        close_connection();
    }
    return false;
}

static void serve_request(struct request* request) {
    struct text out = {0};
    const char* command = request->command;
    const bool early = strcmp(command, "early") == 0;
    const bool finish = strcmp(command, "finish") == 0;
    const bool skip = strcmp(command, "skip") == 0;
    const int number = connection;
    if (!early && !finish && !skip) {
        take_body(request);
    }
    if (strcmp(request->command, "wait-log") == 0) {
        send_log("a line");
    }
    if (!carry_out(request, connection, &out)) {
        _exit(3);
    }
    if (finish) {
        if (send_answer(&out, ended_and_closed)) {
            close_connection();
        }
        run_on(request->argument, number);
    } else if (early) {
        if (send_answer(&out, open_ended)) {
            take_body(request);
            send_end();
        }
    } else if (strcmp(command, "split") == 0) {
        send_split(&out);
    } else {
        if (strcmp(command, "log") == 0) {
            send_log(request->argument);
        }
        send_answer(&out, ended);
    }
    free(out.bytes);
}

void serve_lsapi(bool select_first) {
    const struct sigaction stop = {.sa_handler = on_stop};
    const char* idle = getenv("HOST_MAX_IDLE");
    most_idle = idle != NULL ? atoi(idle) : most_idle;
    sigaction(SIGUSR1, &stop, NULL);
    dup2(2, 1);
    if (select_first) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        listener_number = dup(0);
        const int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        if (getpeername(listener_number, (struct sockaddr*)&address, &length) == 0 || errno != ENOTCONN) {
            connection = listener_number;
            listener_number = -1;
        } else {
            set_blocking(listener_number, false);
        }
    }
    parent = getppid();
    for (struct request request; next_request(&request, select_first);) {
        serve_request(&request);
        free(request.head.bytes);
        free(request.body.bytes);
    }
}
