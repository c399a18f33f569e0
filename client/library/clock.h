// clock.h - what time it is (any thread)
#pragma once

#include <stdint.h>

int64_t gl_now_us(void);  // monotonic
