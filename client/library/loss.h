// loss.h - losses by lossy codecs (the thread of the context)
#pragma once

#include "client/library/context.h"

// Adds the loss of an operation that succeeded to the figures, and warns if it exceeds the limits in loss.c.
void gl_note_loss(gradlane_context* gl, const struct gl_operation* operation, const struct gl_loss_sum* loss);
void gl_add_loss(struct gl_loss_sum* to, const struct gl_loss_sum* loss);
// Values of `what` for results that were not verified: because of values, or of the operation. Others are GL_REASON_...
enum { GL_WARN_UNVERIFIED = 254, GL_WARN_NO_CHECKSUM = 253 };
// Warns of something other than a loss. It warns once for each value of `what`.
void gl_warn(gradlane_context* gl, uint8_t what, const char* format, ...) __attribute__((format(printf, 3, 4)));
