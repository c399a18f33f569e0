// choices.h - strategy and codec of operations that leave them to the library: choices in their order, and the
// agreements of ranks on them (the thread of the context)
#pragma once

#include "client/library/context.h"

// Returns the size class of a tensor of `bytes` bytes, below GL_SIZES.
unsigned gl_size_class(double bytes);

// Returns whether the first request of the queue may begin; its way is then chosen. The first request may now be one of
// the library's own. Returns false if it waits for others that are under way.
bool gl_choose(gradlane_context* gl);

// Returns the agreement of ranks that is under way for the first operation of the queue; NULL: none.
struct gl_request* gl_agreement(gradlane_context* gl);

// Discards all choices, because all ranks begin to count again.
void gl_reset_choices(gradlane_context* gl);
void gl_free_choices(gradlane_context* gl);
