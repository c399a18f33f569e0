// staging.h - ordinary memory on its way to the daemon: copied part by part, and back (the thread of the context)
#pragma once

#include "client/library/context.h"

// Blocks of shared memory have a part each, from when it is put into the rings until its result has been copied back.
// A part is read and written where it belongs soon after one another, and blocks are few: so they stay in the cache.

// A block for one part of `bytes` bytes, or NULL: all are in use, and their ends ring the bell.
struct gl_stage* gl_take_stage(gradlane_context* gl, size_t bytes);
// Where a part of the caller's tensor lies, and its bytes.
struct gl_range gl_part_range(const struct gl_operation* operation, uint64_t part);
// What the daemon shall have of it, into the block.
void gl_load_stage(struct gl_stage* stage, struct gl_range part);
// The result out of it; `wanted`: there is one. The block is free then.
void gl_unload_stage(struct gl_stage* stage, struct gl_range part, bool wanted);
// All blocks are free, and nothing is copied: the daemon has gone.
void gl_drop_stages(gradlane_context* gl);
