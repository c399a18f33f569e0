// progress.h - completions, and the end of the connection (the thread of the context)
#pragma once

#include "client/library/context.h"

// Takes completions from the lanes, and gives them parts that wait.
void gl_progress(gradlane_context* gl);

// Gives the lanes parts that wait.
void gl_advance(gradlane_context* gl);

// Ends the connection. Takes what was completed, and fails everything else.
void gl_gone(gradlane_context* gl, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Makes the descriptor of gradlane_fd() readable or not.
void gl_update_fd(gradlane_context* gl);
