// waits.c - the library's blocking calls (any thread)
#include "client/library/waits.h"

#include <sched.h>
#include <stddef.h>

int gl_poll(struct pollfd* fds, unsigned count, int timeout_ms) { return poll(fds, count, timeout_ms); }

void gl_sleep_ms(int ms) { (void)poll(NULL, 0, ms); }

void gl_yield(void) { (void)sched_yield(); }
