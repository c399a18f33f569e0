// waits.h - the library's blocking calls, which tests replace (any thread)
#pragma once

#include <poll.h>

// Same contract as poll(2).
int gl_poll(struct pollfd* fds, unsigned count, int timeout_ms);
void gl_sleep_ms(int ms);
// Yields the CPU between two reads of the rings.
void gl_yield(void);
