/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/agent/host.h"

struct text environment_at_start;

void append_environment(struct text* out) {
    for (char** entry = environ; *entry != NULL; ++entry) {
        append_format(out, "%s\n", *entry);
    }
}

/* Number, close-on-exec and target of every descriptor. */
static void append_descriptors(struct text* out) {
    DIR* folder = opendir("/proc/self/fd");
    for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
        char target[256] = "";
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(folder) ||
            readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0) {
            continue;
        }
        append_format(out, "%d %s %s\n", fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? "cloexec" : "inherited",
                      target);
    }
    closedir(folder);
}

static void append_all(struct text* out, int fd) {
    char part[4096];
    for (ssize_t got; (got = read(fd, part, sizeof part)) > 0;) {
        append(out, part, (size_t)got);
    }
}

static void append_shell(struct text* out, const char* command) {
    FILE* pipe = popen(command, "r");
    append_all(out, fileno(pipe));
    append_format(out, "status %d\n", pclose(pipe));
}

/* As pcntl_fork() and pcntl_exec() do it. */
static void append_executed(struct text* out) {
    int ends[2];
    if (pipe(ends) != 0) {
        return;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/ls", "ls", "-l", "/proc/self/fd", (char*)NULL);
        _exit(127);
    }
    close(ends[1]);
    append_all(out, ends[0]);
    close(ends[0]);
    waitpid(pid, NULL, 0);
}

void wait_at(const char* gate) {
    int fd;
    while ((fd = open(gate, O_RDONLY | O_CLOEXEC)) < 0 && errno == EINTR) {
    }
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
    close(fd);
}

/* A copy tries everything with the connection and the listener, and tells over a pipe. With a gate it then
 * lives on until that opens. */
static void append_fork(struct text* out, int connection, const char* gate) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        struct text said = {0};
        char byte;
        append_format(&said, "write %ld\n", (long)write(connection, "INTRUDER", 8));
        append_format(&said, "send %ld\n", (long)send(connection, "INTRUDER", 8, MSG_NOSIGNAL));
        append_format(&said, "read %ld\n", (long)read(connection, &byte, 1));
        append_format(&said, "accept %d", accept(listener_number, NULL, NULL));
        append_format(&said, " errno %d\n", errno);
        append_format(&said, "shutdown %d\n", shutdown(connection, SHUT_RDWR));
        append_descriptors(&said);
        append_format(&said, "close %d\n", close(connection));
        if (write(ends[1], said.bytes, said.size) < 0) {
            _exit(1);
        }
        close(ends[1]);
        if (*gate != '\0') {
            wait_at(gate);
        }
        _exit(0);
    }
    close(ends[1]);
    append_all(out, ends[0]);
    close(ends[0]);
    append_format(out, "copy %d\n", (int)pid);
    if (*gate == '\0') {
        waitpid(pid, NULL, 0);
    }
}

static void append_peer(struct text* out, int connection) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    getpeername(connection, (struct sockaddr*)&address, &length);
    append_format(out, "%d", ntohs(address.sin_port));
}

bool carry_out(const struct request* request, int connection, struct text* out) {
    static int serial = 0;
    const char* command = request->command;
    ++serial;
    if (strcmp(command, "pid") == 0) {
        append_format(out, "%d %d %d", getpid(), getppid(), getpgrp());
    } else if (strcmp(command, "dispositions") == 0) {
        report_dispositions(out);
    } else if (strcmp(command, "hidden-signal") == 0) {
        report_hidden_signal(out);
    } else if (strcmp(command, "block") == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        wait_at(request->argument);
        append_format(out, "went on");
    } else if (strcmp(command, "begin") == 0) {
        if (write(connection, request->argument, strlen(request->argument)) > 0) {
            wait_at("/dev/zero");
        }
    } else if (strncmp(command, "spin", 4) == 0) {
        for (;;) {
        }
    } else if (strcmp(command, "serial") == 0) {
        append_format(out, "%d", serial);
    } else if (strcmp(command, "body") == 0) {
        append(out, request->body.bytes != NULL ? request->body.bytes : "", request->body.size);
    } else if (strcmp(command, "environment") == 0) {
        append_environment(out);
    } else if (strcmp(command, "environment-at-start") == 0) {
        append(out, environment_at_start.bytes, environment_at_start.size);
    } else if (strcmp(command, "getenv") == 0) {
        append_format(out, "%s", getenv(request->argument) != NULL ? getenv(request->argument) : "(null)");
    } else if (strcmp(command, "descriptors") == 0) {
        append_format(out, "connection %d\n", connection);
        append_descriptors(out);
    } else if (strcmp(command, "popen") == 0) {
        append_shell(out, request->argument);
    } else if (strcmp(command, "exec") == 0) {
        append_executed(out);
    } else if (strcmp(command, "fork") == 0) {
        append_fork(out, connection, request->argument);
    } else if (strcmp(command, "fork-both") == 0) {
        append_format(out, "pid %d", (int)fork());
    } else if (strncmp(command, "wait", 4) == 0) {
        wait_at(request->argument);
        append_format(out, "waited");
    } else if (strcmp(command, "calls") == 0) {
        report_calls(out);
    } else if (strcmp(command, "fault") == 0) {
        report_fault(out);
    } else if (strcmp(command, "peer") == 0) {
        append_peer(out, connection);
    } else if (strcmp(command, "big") == 0) {
        const size_t size = strtoul(request->argument, NULL, 10);
        for (size_t i = 0; i < size; ++i) {
            append(out, &"0123456789"[i % 10], 1);
        }
    } else if (strcmp(command, "head") == 0) {
        append(out, request->head.bytes, request->head.size);
    } else if (strcmp(command, "trace") == 0) {
        append(out, call_trace.bytes, call_trace.size);
        call_trace.size = 0;
    } else if (strcmp(command, "ran-on") == 0) {
        append_format(out, "%s", run_on_report.size > 0 ? run_on_report.bytes : "");
    } else if (strcmp(command, "kill") == 0) {
        raise(atoi(request->argument));
    } else if (strcmp(command, "exhaust") == 0) {
        const struct rlimit none = {3, 3};
        setrlimit(RLIMIT_NOFILE, &none);
        append_format(out, "exhausted");
    } else if (strcmp(command, "die") == 0) {
        return false;
    } else {
        append_format(out, "hello");
    }
    return true;
}
