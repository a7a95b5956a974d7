/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/agent/host.h"

void append(struct text* text, const void* bytes, size_t size) {
    text->bytes = realloc(text->bytes, text->size + size + 1);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

void append_format(struct text* text, const char* format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    append(text, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

bool read_exactly(int fd, void* to, size_t size) {
    size_t have = 0;
    while (have < size) {
        errno = 0;
        const ssize_t got = read(fd, (char*)to + have, size - have);
        if (got > 0) {
            have += (size_t)got;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

struct header {
    unsigned char version, type, id[2], content[2], padding, reserved;
};

/* The content of a record of the wanted stream; false at anything else. */
static bool read_record(int fd, struct header* header, unsigned char* content, size_t* size) {
    if (!read_exactly(fd, header, sizeof *header)) {
        return false;
    }
    *size = (size_t)header->content[0] << 8 | header->content[1];
    return *size + header->padding == 0 || read_exactly(fd, content, *size + header->padding);
}

static void take_pairs(struct request* request, const unsigned char* at, const unsigned char* end) {
    while (end - at >= 2) {
        size_t length[2];
        for (int i = 0; i < 2; ++i) {
            length[i] = *at++;
            if (length[i] & 0x80 && end - at >= 3) {
                length[i] = (length[i] & 0x7f) << 24 | (size_t)at[0] << 16 | (size_t)at[1] << 8 | at[2];
                at += 3;
            }
        }
        if ((size_t)(end - at) < length[0] + length[1]) {
            return;
        }
        const char* value = (const char*)at + length[0];
        if (length[0] == 7 && memcmp(at, "COMMAND", 7) == 0) {
            snprintf(request->command, sizeof request->command, "%.*s", (int)length[1], value);
        } else if (length[0] == 8 && memcmp(at, "ARGUMENT", 8) == 0) {
            snprintf(request->argument, sizeof request->argument, "%.*s", (int)length[1], value);
        }
        at += length[0] + length[1];
    }
}

bool read_request(int fd, struct request* request) {
    static unsigned char content[65536 + 256];
    struct header header;
    size_t size = 0;
    memset(request, 0, sizeof *request);
    do {
        /* What the request before has left. */
        if (!read_record(fd, &header, content, &size)) {
            return false;
        }
    } while (header.type == 5 && size == 0);
    if (header.type != 1 || size != 8) {
        return false;
    }
    request->keep = content[2] & 1;
    for (;;) {
        if (!read_record(fd, &header, content, &size) || header.type != 4) {
            return false;
        }
        if (size == 0) {
            break;
        }
        take_pairs(request, content, content + size);
    }
    const bool early = strcmp(request->command, "early") == 0 || strcmp(request->command, "spin-early") == 0;
    while (!early && !request->body_ended) {
        if (!read_record(fd, &header, content, &size) || header.type != 5) {
            return false;
        }
        request->body_ended = size == 0;
        append(&request->body, content, size);
    }
    return true;
}

static bool write_all(int fd, const void* from, size_t size) {
    size_t done = 0;
    while (done < size) {
        const ssize_t written = write(fd, (const char*)from + done, size - done);
        if (written <= 0 && errno != EINTR) {
            return false;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool complain(int fd, const char* text, bool behind_output) {
    static const unsigned char output[9] = {1, 6, 0, 1, 0, 1, 0, 0, 'a'};
    const unsigned char header[8] = {1, 7, 0, 1, 0, (unsigned char)strlen(text), 0, 0};
    struct text one = {0};
    if (behind_output) {
        append(&one, output, sizeof output);
    }
    append(&one, header, sizeof header);
    append(&one, text, strlen(text));
    const bool written = write_all(fd, one.bytes, one.size);
    free(one.bytes);
    return written;
}

bool answer(int fd, const struct text* text, bool in_three_writes) {
    static const unsigned char end[16] = {1, 3, 0, 1, 0, 8};
    enum { most = 65528 };
    for (size_t at = 0;;) {
        const size_t size = text->size - at < most ? text->size - at : most;
        const unsigned char header[8] = {1, 6, 0, 1, (unsigned char)(size >> 8), (unsigned char)size, 0, 0};
        const bool last = at + size == text->size;
        if (in_three_writes || !last) {
            if (!write_all(fd, header, sizeof header) || !write_all(fd, text->bytes + at, size)) {
                return false;
            }
        } else {
            struct text one = {0};
            if (size > 0) {
                append(&one, header, sizeof header);
                append(&one, text->bytes + at, size);
            }
            append(&one, end, sizeof end);
            const bool written = write_all(fd, one.bytes, one.size);
            free(one.bytes);
            return written;
        }
        at += size;
        if (last) {
            return write_all(fd, end, sizeof end);
        }
    }
}
