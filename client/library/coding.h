// coding.h - which codec an operation goes through, and which way round (the thread of the context)
#pragma once

#include "client/library/context.h"

// Writes both into the submission of `out`, whose count and whole are known. `codec`: the one of the way there, or that
// of the daemon's configuration where none is named.
gradlane_code gl_choose_coding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                               const gradlane_how* how, struct gl_operation* out, struct gl_codec_name* codec);
// Has it counted, for people, where a codec that rounds was named or configured for such a sum and does nothing.
void gl_note_exact(gradlane_context* gl, const gradlane_how* how, const struct gl_codec_name* codec,
                   const struct gl_operation* out);
