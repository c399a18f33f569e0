// coding.h - the codec and the strategy of an operation (the thread of the context)
#pragma once

#include "client/library/context.h"

// Writes both into the submission of `out`, whose count and whole are known. `codec` becomes the codec of
// contributions, or that of the daemon's configuration if none is named.
gradlane_code gl_choose_coding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                               const gradlane_how* how, struct gl_operation* out, struct gl_codec_name* codec);
// Counts the operation in a report for people, if a codec that rounds was named or configured for this sum and does
// nothing.
void gl_note_exact(gradlane_context* gl, const gradlane_how* how, const struct gl_codec_name* codec,
                   const struct gl_operation* out);
