// clock.c - the library's clock (any thread)
#include "client/library/clock.h"

#include <time.h>

int64_t gl_now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
