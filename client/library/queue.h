// queue.h - operations on their way into the lanes' rings (the thread of the context)
#pragma once

#include "client/library/context.h"

// Puts the request at the end of the queue.
void gl_enqueue(gradlane_context* gl, struct gl_request* request);
// Puts parts into the rings until these are full. Returns false if the daemon's count is impossible.
bool gl_fill_rings(gradlane_context* gl);
// Fails the parts that have not begun, of all requests.
void gl_drop_queue(gradlane_context* gl, gradlane_code code, gradlane_cause cause, const char* text);
// Cancels a request: parts that have not begun fail, and the lanes are told to cancel the others.
void gl_cancel_request(gradlane_context* gl, struct gl_request* request);
