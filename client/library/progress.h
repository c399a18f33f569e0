// progress.h - completions, and the end of the connection (the thread of the context)
#pragma once

#include "client/library/context.h"

// Takes completions from the lanes, and puts parts that wait into the lanes' rings.
void gl_progress(gradlane_context* gl);

// Puts parts that wait into the lanes' rings.
void gl_advance(gradlane_context* gl);

// Ends the connection. Takes what was completed, and fails everything else.
void gl_gone(gradlane_context* gl, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Makes the descriptor of gradlane_fd() readable if a request is over or something waits for a free entry in a ring.
// Otherwise makes it unreadable.
void gl_update_fd(gradlane_context* gl);
