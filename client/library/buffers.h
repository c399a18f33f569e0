// buffers.h - memory shared with the daemon (the thread of the context)
#pragma once

#include "client/library/context.h"

// Returns the buffer that holds `address`, or NULL.
const struct gl_buffer* gl_find_buffer(const gradlane_context* gl, const void* address);
// Makes blocks for parts of `bytes` bytes (staging.h): at least one, and at most `parts`. `bytes` is not 0.
gradlane_code gl_get_stages(gradlane_context* gl, size_t bytes, uint64_t parts);
void gl_unmap_buffers(gradlane_context* gl);
