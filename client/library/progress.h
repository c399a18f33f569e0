// progress.h - completions, and the end of the connection (the thread of the context)
#pragma once

#include "client/library/context.h"

// Takes what the lanes have completed, and has them go on with what waits.
void gl_progress(gradlane_context* gl);

// Has the lanes go on with what waits.
void gl_advance(gradlane_context* gl);

// The connection is of no use any more: takes what was completed, fails all else.
void gl_gone(gradlane_context* gl, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Makes what gradlane_fd() has given readable or not.
void gl_update_fd(gradlane_context* gl);
