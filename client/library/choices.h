// choices.h - the choice of strategy and codec for operations that leave it to the library, in the order of the
// operations, and the agreements of ranks on these choices (the thread of the context)
#pragma once

#include "client/library/context.h"

// Returns the size class of a tensor of `bytes` bytes, below GL_SIZES.
unsigned gl_size_class(double bytes);

// Chooses the candidate of the first request in the queue. Returns true if the first request may begin now, which may
// be an agreement that this call has put in front of it. Returns false if it must wait for other requests that are
// under way.
bool gl_choose(gradlane_context* gl);

// Returns the agreement of ranks that is under way for the first operation of the queue; NULL: none.
struct gl_request* gl_agreement(gradlane_context* gl);

// Discards all choices, because all ranks count operations from 0 again.
void gl_reset_choices(gradlane_context* gl);
void gl_free_choices(gradlane_context* gl);
