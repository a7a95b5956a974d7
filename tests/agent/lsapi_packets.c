/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/agent/lsapi.h"

enum { head_size = 44, most_head = 65535, most_content = 16384, body_block = 16384 };
enum { begin_request = 1, resp_header = 3, resp_stream = 4, stderr_stream = 6 };

struct text call_trace;
volatile sig_atomic_t running = 1;
int connection = -1;

/* The request: `used` of `have` bytes in the buffer have been consumed. */
static unsigned char* buffer;
static size_t capacity, have, used, body_left;
static bool swapped;

ssize_t noted(const char* call, ssize_t result) {
    const int error = errno;
    if (call_trace.size > 1 << 20) {
        call_trace.size = 0;
    }
    if (result < 0) {
        append_format(&call_trace, "%s errno %d\n", call, error);
    } else {
        append_format(&call_trace, "%s %zd\n", call, result);
    }
    errno = error;
    return result;
}

void close_connection(void) {
    if (connection >= 0) {
        noted("close", close(connection));
        connection = -1;
    }
}

static uint32_t number_at(const unsigned char* at) {
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return swapped ? __builtin_bswap32(number) : number;
}

static unsigned own_flag(void) {
#if defined(__i386__) || defined(__x86_64__)
    return 0;
#else
    return 1; /* what lsphp takes every other processor for */
#endif
}

void put_header(unsigned char* at, int type, size_t content) {
    const int32_t length = (int32_t)(header_size + content);
    const unsigned char start[4] = {'L', 'S', (unsigned char)type, (unsigned char)own_flag()};
    memcpy(at, start, sizeof start);
    memcpy(at + 4, &length, sizeof length);
}

static bool reserve(size_t size) {
    if (capacity < size) {
        buffer = realloc(buffer, size);
        capacity = size;
    }
    return buffer != NULL;
}

static ssize_t receive(void* to, size_t size) {
    ssize_t got;
    do {
        got = noted("read", read(connection, to, size));
    } while (got < 0 && errno == EINTR && running);
    return got;
}

static size_t receive_head(void) {
    have = used = 0;
    reserve(8192);
    while (have < header_size) {
        const ssize_t got = receive(buffer, capacity);
        if (got <= 0) {
            return 0;
        }
        have += (size_t)got;
    }
    swapped = (buffer[3] & 1) != own_flag();
    const size_t length = number_at(buffer + 4);
    if (buffer[0] != 'L' || buffer[1] != 'S' || buffer[2] != begin_request || length < head_size ||
        length > most_head) {
        noted("garbled", 0);
        return 0;
    }
    reserve(length + 1024);
    while (have < length) {
        const ssize_t got = receive(buffer + have, length - have);
        if (got <= 0) {
            return 0;
        }
        have += (size_t)got;
    }
    used = length;
    return length;
}

static void take_entry(struct request* request, const char* name, const char* value) {
    if (strcmp(name, "COMMAND") == 0) {
        snprintf(request->command, sizeof request->command, "%s", value);
    } else if (strcmp(name, "ARGUMENT") == 0) {
        snprintf(request->argument, sizeof request->argument, "%s", value);
    }
}

/* Behind the list, or 0 if it is none. */
static size_t take_list(struct request* request, size_t at, size_t end, uint32_t count) {
    for (; count > 0 && at + 4 <= end; --count) {
        const size_t name = (size_t)buffer[at] << 8 | buffer[at + 1];
        const size_t value = (size_t)buffer[at + 2] << 8 | buffer[at + 3];
        if (name == 0 || value == 0 || at + 4 + name + value > end) {
            return 0;
        }
        take_entry(request, (const char*)buffer + at + 4, (const char*)buffer + at + 4 + name);
        at += 4 + name + value;
    }
    return count == 0 && at + 4 <= end ? at + 4 : 0;
}

static bool parse_head(struct request* request, size_t length) {
    size_t at = take_list(request, head_size, length, number_at(buffer + 40));
    at = at == 0 ? 0 : take_list(request, at, length, number_at(buffer + 36));
    const size_t index = (at + 7) / 8 * 8;
    const size_t block = index + 152 + 16 * (size_t)number_at(buffer + 32);
    if (at == 0 || block + number_at(buffer + 8) != length) {
        noted("garbled", 0);
        return false;
    }
    const int32_t announced = (int32_t)number_at(buffer + 12);
    const size_t content_length = number_at(buffer + index + 52 + 4 * 7);
    body_left = announced > 0 ? (size_t)announced : 0;
    if (announced == -2 && content_length != 0) {
        body_left = strtoul((const char*)buffer + block + content_length, NULL, 10);
    }
    append(&request->head, buffer, length);
    return true;
}

bool take_head(struct request* request) {
    memset(request, 0, sizeof *request);
    const size_t length = receive_head();
    return length > 0 && parse_head(request, length);
}

void take_body(struct request* request) {
    static unsigned char block[body_block];
    bool more = true;
    while (body_left > 0 && more) {
        const size_t size = body_left < sizeof block ? body_left : sizeof block;
        size_t filled = size < have - used ? size : have - used;
        memcpy(block, buffer + used, filled);
        used += filled;
        while (filled < size && more) {
            const ssize_t got = receive(block + filled, size - filled);
            more = got > 0;
            filled += more ? (size_t)got : 0;
        }
        append(&request->body, block, filled);
        body_left -= filled;
    }
    request->body_ended = body_left == 0;
    body_left = 0;
}

static bool send_parts(struct iovec* part, int count) {
    size_t left = 0;
    for (int i = 0; i < count; ++i) {
        left += part[i].iov_len;
    }
    while (left > 0 && running && connection >= 0) {
        ssize_t written = noted("writev", writev(connection, part, count));
        if (written < 0 && errno != EINTR) {
            break;
        }
        left -= written > 0 ? (size_t)written : 0;
        while (written > 0 && (size_t)written >= part->iov_len) {
            written -= (ssize_t)part->iov_len;
            ++part;
            --count;
        }
        if (written > 0) {
            part->iov_base = (char*)part->iov_base + written;
            part->iov_len -= (size_t)written;
        }
    }
    if (left > 0) {
        close_connection();
    }
    return left == 0;
}

bool send_end(void) {
    unsigned char packet[header_size];
    struct iovec part = {packet, sizeof packet};
    put_header(packet, resp_end, 0);
    return send_parts(&part, 1);
}

static size_t make_head(unsigned char* head) {
    static const char line[] = "Content-type: text/plain";
    const int32_t numbers[2] = {1, 200};
    const int16_t length = sizeof line;
    put_header(head, resp_header, sizeof numbers + sizeof length + sizeof line);
    memcpy(head + header_size, numbers, sizeof numbers);
    memcpy(head + header_size + sizeof numbers, &length, sizeof length);
    memcpy(head + header_size + sizeof numbers + sizeof length, line, sizeof line);
    return header_size + sizeof numbers + sizeof length + sizeof line;
}

bool send_answer(const struct text* text, enum ending ending) {
    unsigned char head[128], headers[4][header_size], end[2 * header_size];
    struct iovec parts[10] = {{head, make_head(head)}};
    int count = 1;
    size_t at = 0;
    for (int packets = 0; at < text->size; ++packets) {
        const size_t size = text->size - at < most_content ? text->size - at : most_content;
        if (packets == 4) {
            if (!send_parts(parts, count)) {
                return false;
            }
            packets = count = 0;
        }
        put_header(headers[packets], resp_stream, size);
        parts[count++] = (struct iovec){headers[packets], header_size};
        parts[count++] = (struct iovec){text->bytes + at, size};
        at += size;
    }
    if (text->size >= 8192 || ending == open_ended) {
        if (!send_parts(parts, count) || ending == open_ended) {
            return ending == open_ended;
        }
        count = 0;
    }
    put_header(end, resp_end, 0);
    put_header(end + header_size, conn_close, 0);
    parts[count++] = (struct iovec){end, ending == ended_and_closed ? sizeof end : header_size};
    return send_parts(parts, count);
}

void send_split(const struct text* text) {
    unsigned char head[128], header[header_size];
    struct iovec part = {head, make_head(head)};
    put_header(header, resp_stream, text->size);
    struct iovec content[2] = {{header, sizeof header}, {text->bytes, text->size}};
    if (send_parts(&part, 1) && send_parts(content, 2)) {
        send_end();
    }
}

void send_log(const char* text) {
    unsigned char header[header_size];
    put_header(header, stderr_stream, strlen(text));
    struct iovec parts[2] = {{header, sizeof header}, {(void*)(uintptr_t)text, strlen(text)}};
    send_parts(parts, 2);
}
