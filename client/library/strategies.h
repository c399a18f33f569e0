// strategies.h - the daemon's strategies, by name (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. Returns false if it makes no sense.
bool gl_read_strategies(gradlane_context* gl, size_t bytes);
// The operation that a strategy must carry. `call` is for error texts. `codec` is NULL if elements are sent without a
// codec.
struct gl_operation_traits {
  const char* call;
  enum gl_submission_kind kind;
  const struct gl_codec_name* codec;
};
// Finds the strategy of this name. Fails if it cannot carry the operation of `traits`. If `name` is NULL, finds the
// default strategy of such operations. *strategy is then NULL if the daemon does not list strategies.
gradlane_code gl_find_strategy(gradlane_context* gl, const char* name, const struct gl_operation_traits* traits,
                               const struct gl_strategy_row** strategy);
