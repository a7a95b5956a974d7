/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>

#include "tests/agent/host.h"

/* What reports of calls share: calls.c, calls_select.c. */

enum { untouched = 12345 };

/* One line a call; `out` is the text that it goes to. */
#define SHOW(call)                                                       \
    do {                                                                 \
        errno = untouched;                                               \
        const long result = (long)(call);                                \
        append_format(out, "%s: %ld, errno %d\n", #call, result, errno); \
    } while (0)

/* Volatile, so that the compiler does not know better. */
static void* volatile nowhere = (void*)1;
