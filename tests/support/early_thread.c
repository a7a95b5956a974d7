/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded, it does to PHP what some extensions do: starts a thread before PHP asks for its first connection. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void* sleep_for_ever(void* unused) {
    for (;;) {
        pause();
    }
    return unused;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    if (strstr(program_invocation_short_name, "php") != NULL) {
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
    }
}
