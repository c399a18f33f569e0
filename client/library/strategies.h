// strategies.h - the daemon's strategies, by name (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. False: it makes no sense.
bool gl_read_strategies(gradlane_context* gl, size_t bytes);
// The one of this name, which can do operations of this kind, or of operations that name none: that is NULL where the
// daemon does not tell. `call` is for the text.
gradlane_code gl_find_strategy(gradlane_context* gl, const char* call, const char* name, enum gl_submission_kind kind,
                               const struct gl_strategy_row** strategy);
