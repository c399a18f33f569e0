// requests.h - the caller's requests: made, found, over, forgotten (the thread of the context)
#pragma once

#include "client/library/context.h"

// A new one in state GL_RUNNING, or NULL: no memory.
struct gl_request* gl_new_request(gradlane_context* gl, const struct gl_operation* operation);
void gl_release_request(gradlane_context* gl, struct gl_request* request);
void gl_free_requests(gradlane_context* gl);
// The unfinished request of this number, or NULL.
struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request number);
// The unfinished request that uses any of these bytes, or NULL.
const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes);
// Makes zeros of its residual.
void gl_clear_states(const struct gl_operation* operation);
// Adds what it has to the data, which then owes nothing: elements go as they are.
void gl_pay(const gradlane_context* gl, const struct gl_operation* operation);
// It is over.
void gl_end_request(gradlane_context* gl, struct gl_request* request);
// Sets of ways that no class and no request refers to are forgotten.
void gl_drop_sets(gradlane_context* gl);
