// clock.h - the library's clock, which tests replace (any thread)
#pragma once

#include <stdint.h>

int64_t gl_now_us(void);  // CLOCK_MONOTONIC, in microseconds
