// strategies.h - the daemon's strategies, by name (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's table out of the control segment of `bytes` bytes. False: it makes no sense.
bool gl_read_strategies(gradlane_context* gl, size_t bytes);
// What is to be carried: by what call, for texts; and of which codec, NULL where elements travel as they are.
struct gl_cargo {
  const char* call;
  enum gl_submission_kind kind;
  const struct gl_codec_name* codec;
};
// The one of this name, which can do that, or of operations that name none: that is NULL where the daemon does not
// tell.
gradlane_code gl_find_strategy(gradlane_context* gl, const char* name, const struct gl_cargo* cargo,
                               const struct gl_strategy_row** strategy);
