// choices.h - which way operations go that leave it to the library: choices in their order, and what ranks agree on for
// them (the thread of the context)
#pragma once

#include "client/library/context.h"

// The class of size of so many bytes: below GL_SIZES.
unsigned gl_size_class(double bytes);

// Whether the first request of the queue may begin; then it is known which way it goes. A request of the library's own
// may be the first one now. False: it waits for others that are under way.
bool gl_choose(gradlane_context* gl);

// What ranks agree on for the first operation of the queue, and has not ended. NULL: nothing.
struct gl_request* gl_agreement(gradlane_context* gl);

// All ranks begin to count again: so do choices.
void gl_choose_afresh(gradlane_context* gl);
void gl_free_choices(gradlane_context* gl);
