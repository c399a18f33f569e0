// loss.h - losses by lossy codecs (the thread of the context)
#pragma once

#include "client/library/context.h"

// Counts what a codec has taken away from an operation that succeeded, and warns if it is much.
void gl_note_loss(gradlane_context* gl, const struct gl_operation* operation, const struct gl_loss_sum* loss);
void gl_add_loss(struct gl_loss_sum* to, const struct gl_loss_sum* loss);
// Warns of something else, once for each `what`.
void gl_warn(gradlane_context* gl, uint8_t what, const char* format, ...) __attribute__((format(printf, 3, 4)));
