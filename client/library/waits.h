// waits.h - all that the library waits by (any thread)
#pragma once

#include <poll.h>

// As poll().
int gl_poll(struct pollfd* fds, unsigned count, int timeout_ms);
void gl_sleep_ms(int ms);
// While rings are looked at again and again: others may have the CPU.
void gl_yield(void);
