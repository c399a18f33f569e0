// coding.h - the codec and the strategy of an operation (the thread of the context)
#pragma once

#include "client/library/context.h"

// Writes the codec and the strategy into the submission of `out`, whose count and whole are known. Sets *codec to the
// codec of contributions: the one that is named, or that of the daemon's configuration.
gradlane_code gl_choose_coding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                               const gradlane_how* how, struct gl_operation* out, struct gl_codec_name* codec);
// Counts a sum in a report (report.h) if a codec that rounds was named or configured for it, but cannot apply to its
// type.
void gl_note_exact(gradlane_context* gl, const gradlane_how* how, const struct gl_codec_name* codec,
                   const struct gl_operation* out);
