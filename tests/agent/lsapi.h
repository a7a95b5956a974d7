/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "tests/agent/host.h"

/* One LSAPI connection, read and written in the pieces and with the calls of lsphp. */

enum { header_size = 8, resp_end = 5, req_received = 7, conn_close = 8 };

extern volatile sig_atomic_t running; /* 0: a signal has asked for the end */
extern int connection;                /* -1: none */

/* Writes a call down in call_trace, with what came of it, and returns that. */
ssize_t noted(const char* call, ssize_t result);
void close_connection(void);

void put_header(unsigned char* at, int type, size_t content);

/* Reads up to 8192 bytes, whatever they are, until there is a header; then exactly the rest of the packet. A
 * first piece that is shorter than a header is overwritten by the second. False: to be closed. */
bool take_head(struct request* request);
/* In blocks, as PHP asks for them; never beyond the end of the body. */
void take_body(struct request* request);

/* They close the connection and say false if it does not take everything. */
enum ending { ended, open_ended, ended_and_closed };
/* What is shorter than lsphp's buffer leaves in one call, with its end; the rest in up to four packets a
 * call, the end behind it. */
bool send_answer(const struct text* text, enum ending ending);
/* Head, content and end in a call each. */
void send_split(const struct text* text);
void send_log(const char* text);
bool send_end(void);
