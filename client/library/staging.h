// staging.h - ordinary memory on its way to the daemon: copied part by part, and back (the thread of the context)
#pragma once

#include "client/library/context.h"

// Blocks of shared memory have a part each, from when it is put into the rings until its result has been copied back.
// A part is read and written where it belongs soon after one another, and blocks are few: so they stay in the cache.

// A block for one part of `bytes` bytes, or NULL: all are in use, and their ends ring the bell.
struct gl_stage* gl_take_stage(gradlane_context* gl, size_t bytes);
// Returns how many bytes a part takes there.
size_t gl_part_bytes(const gradlane_context* gl, const struct gl_operation* operation, uint64_t part);
// Copies into the block what the daemon shall have of the part.
void gl_load_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                   uint64_t part);
// Copies the result out of the block if it is wanted. The block is free then.
void gl_unload_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                     uint64_t part, bool wanted);
// All blocks are free, and nothing is copied: the daemon has gone.
void gl_drop_stages(gradlane_context* gl);
