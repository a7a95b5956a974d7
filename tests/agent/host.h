/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A program that calls libc the way php-cgi does, or lsphp, and whose requests say what it is to do. */

/* Text that grows; never freed, for a request is short. */
struct text {
    char* bytes;
    size_t size;
};
void append(struct text* text, const void* bytes, size_t size);
void append_format(struct text* text, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* fcgi.c: as php-cgi reads and writes; the names of the parts follow the specification. */
struct request {
    bool keep;
    char command[64];
    char argument[512];
    struct text head; /* LSAPI: the packet as it was read */
    struct text body;
    bool body_ended;
};
bool read_exactly(int fd, void* to, size_t size);
/* Without the body, if the command says so. */
bool read_request(int fd, struct request* request);
/* Tells the web server's log, and if wanted a byte of the answer before. */
bool complain(int fd, const char* text, bool behind_output);
bool answer(int fd, const struct text* text, bool in_three_writes);

/* lsapi.c: as lsphp takes connections and requests, and answers. `select_first`: on a copy of descriptor 0,
 * as lsphp; else it accepts from 0 without asking. */
void serve_lsapi(bool select_first);
extern int listener_number;       /* on which the program accepts */
extern struct text call_trace;    /* what the loop has called, a line a call, since it was last told */
extern struct text run_on_report; /* what a script saw after it had ended its connection */

/* calls.c: what every wrapped function returns, and which errno it leaves, for descriptors that are not the
 * agent's. */
void report_calls(struct text* out);
/* Apart, for a wrong wrapper would not survive it. */
void report_fault(struct text* out);

/* calls_select.c: the same for the functions that only lsphp uses. */
void report_select(struct text* out);

/* signals.c: whether sigaction(2) tells the truth after each way of setting a disposition. */
void report_dispositions(struct text* out);
/* The same for the signal by which requests are ended, whose handler is the agent's. */
void report_hidden_signal(struct text* out);

/* commands.c */
extern struct text environment_at_start;
void append_environment(struct text* out);
/* Blocks until somebody opens the FIFO for writing and closes it again. */
void wait_at(const char* gate);
/* False: end the process without an answer. */
bool carry_out(const struct request* request, int connection, struct text* out);
