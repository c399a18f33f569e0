// buffers.h - memory shared with the daemon (the thread of the context)
#pragma once

#include "client/library/context.h"

// The buffer that holds `address`, or NULL.
const struct gl_buffer* gl_find_buffer(const gradlane_context* gl, const void* address);
void gl_unmap_buffers(gradlane_context* gl);
