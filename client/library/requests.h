// requests.h - the caller's requests, from their start until the caller knows how they ended (the thread of the
// context)
#pragma once

#include "client/library/context.h"

// Makes a request in state GL_RUNNING. Returns NULL if there is no memory.
struct gl_request* gl_new_request(gradlane_context* gl, const struct gl_operation* operation);
void gl_release_request(gradlane_context* gl, struct gl_request* request);
void gl_free_requests(gradlane_context* gl);
// Returns the request of this number whose end the caller does not know yet, or NULL. It may have ended (GL_OVER).
struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request number);
// Returns a request that uses any of these bytes and whose end the caller does not know yet, or NULL.
const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes);
// Makes the residual of the operation zero.
void gl_clear_states(const struct gl_operation* operation);
// Adds the residual to the data and makes the residual zero, for elements that are sent without rounding.
void gl_add_residual(const gradlane_context* gl, const struct gl_operation* operation);
// Marks a request as over. Its result is already set.
void gl_end_request(gradlane_context* gl, struct gl_request* request);
// Drops the sets of candidates that no class and no request refers to.
void gl_drop_sets(gradlane_context* gl);
