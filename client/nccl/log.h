// log.h - lines in NCCL's log, and time (any thread)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// Sets the function that log() calls. NCCL passes the same one each time.
void set_logger(Logger logger);

// Writes "gradlane: ..." to NCCL's log. NCCL_DEBUG=WARN shows kWarn, NCCL_DEBUG=INFO also kInfo.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Returns the time of a clock that only goes forward.
int64_t now_ms();

}  // namespace gradlane::nccl
