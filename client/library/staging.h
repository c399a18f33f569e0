// staging.h - ordinary memory on its way to the daemon: copied part by part, and back (the thread of the context)
#pragma once

#include "client/library/context.h"

// A block of shared memory holds one part, from when it is put into the rings until its result has been copied back.
// The library copies a part shortly before the daemon reads it, and its result shortly after the daemon writes it.
// There are few blocks, so they stay in the cache.

// Takes a free block for one part of `bytes` bytes. Returns NULL if all are in use. A block becomes free when the
// daemon has completed the part in it, for which it rings the bell.
struct gl_stage* gl_take_stage(gradlane_context* gl, size_t bytes);
// Returns how many bytes a part takes in a block.
size_t gl_part_bytes(const gradlane_context* gl, const struct gl_operation* operation, uint64_t part);
// Copies the data of the part that the daemon needs into the block.
void gl_load_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                   uint64_t part);
// Copies the result out of the block if it is wanted, then frees the block.
void gl_unload_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                     uint64_t part, bool wanted);
// Frees all blocks without copying, as the daemon has gone.
void gl_drop_stages(gradlane_context* gl);
