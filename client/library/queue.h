// queue.h - operations on their way into the lanes' rings (the thread of the context)
#pragma once

#include "client/library/context.h"

// Puts the request behind all others.
void gl_enqueue(gradlane_context* gl, struct gl_request* request);
// Puts into the rings what they have room for. False: a daemon's count is garbage.
bool gl_fill_rings(gradlane_context* gl);
// Fails what has not begun, of all requests.
void gl_drop_queue(gradlane_context* gl, gradlane_code code, gradlane_cause cause, const char* text);
// Has the lanes told that this one is given up.
void gl_cancel_request(gradlane_context* gl, struct gl_request* request);
