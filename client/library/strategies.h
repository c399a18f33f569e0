// strategies.h - the daemon's strategies, by name (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. Returns false if it makes no sense.
bool gl_read_strategies(gradlane_context* gl, size_t bytes);
// The operation that a strategy must carry. `call` is for error texts. `codec` is NULL where elements travel as they
// are.
struct gl_operation_traits {
  const char* call;
  enum gl_submission_kind kind;
  const struct gl_codec_name* codec;
};
// Finds the strategy of this name, which must be able to do this. If `name` is NULL, it finds that of operations that
// name none; it is NULL if the daemon does not list strategies.
gradlane_code gl_find_strategy(gradlane_context* gl, const char* name, const struct gl_operation_traits* traits,
                               const struct gl_strategy_row** strategy);
