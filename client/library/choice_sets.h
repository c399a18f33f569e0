// choice_sets.h - what a context's tuner has to choose from (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's tables out of the control segment of `bytes` bytes. False: they make no sense.
bool gl_read_ways(gradlane_context* gl, size_t bytes);

// What is to be chosen: by a codec that is found (`codec`), or that keeps a bound (`asks`); neither: of elements that
// travel as they are.
struct gl_choice_of {
  enum gl_submission_kind kind;
  const char* asked;     // the name of the codec
  const char* strategy;  // NULL: to be chosen
  const struct gl_auto* asks;
  const struct gl_codec_name* codec;
  bool residual;
};
// The ways there are, as a set that stays as long as a class or a request refers to it; NULL in `set`: there is nothing
// to choose from.
gradlane_code gl_find_set(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_choice_set** set);
