// choice_sets.h - the candidates that a context's tuner can choose from (the thread of the context)
#pragma once

#include "client/library/context.h"

// Copies the daemon's tables out of the control segment of `bytes` bytes. Returns false if they make no sense.
bool gl_read_candidates(gradlane_context* gl, size_t bytes);

// The operations for which a candidate is chosen. Either their codec is known (`codec`), or it is to be chosen and must
// keep a bound (`asks`). If both are NULL, elements are sent without a codec.
struct gl_choice_of {
  enum gl_submission_kind kind;
  const char* asked;     // name of the codec, as the caller has given it
  const char* strategy;  // only strategy that may be chosen; NULL: any
  const struct gl_auto* asks;
  const struct gl_codec_name* codec;
  bool residual;
};
// Finds or makes the set of candidates for such operations. The set stays as long as a class or a request refers to it.
// *set is NULL if there is nothing to choose from.
gradlane_code gl_find_set(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_choice_set** set);
