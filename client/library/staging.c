// staging.c - copies of ordinary memory to the daemon and back (the thread of the context)
#include "client/library/staging.h"

#include <string.h>

struct gl_stage* gl_take_stage(gradlane_context* gl, size_t bytes) {
  for (unsigned i = 0; i < GL_STAGES; ++i) {
    struct gl_stage* const it = &gl->stages[i];
    if (it->taken || it->bytes < bytes) continue;
    it->taken = true;
    return it;
  }
  return NULL;
}

// A part of a tensor, or of each rank's block: its offset and its length in bytes.
struct slice {
  size_t first;
  size_t bytes;
};

static struct slice slice_of(const struct gl_operation* operation, uint64_t part) {
  const uint64_t first = part * operation->each;
  const uint64_t left = operation->submission.count - first;
  const uint64_t count = left < operation->each ? left : operation->each;
  return (struct slice){.first = first * operation->width, .bytes = count * operation->width};
}

size_t gl_part_bytes(const gradlane_context* gl, const struct gl_operation* operation, uint64_t part) {
  const size_t bytes = slice_of(operation, part).bytes;
  return operation->rows != NULL ? bytes * gl->welcome.world : bytes;
}

// Copies between the block and the ranks' blocks in the caller's memory, or only this rank's data (not `all`). Copies
// into the block if `there` is true, else out of it.
static void copy_rows(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                      struct slice slice, bool all, bool there) {
  for (uint32_t rank = 0; rank < gl->welcome.world; ++rank) {
    if (!all && rank != gl->welcome.rank) continue;
    uint8_t* const caller = (all ? (uint8_t*)operation->rows[rank] : operation->data.base) + slice.first;
    uint8_t* const staged = stage->base + rank * slice.bytes;
    if (there) {
      memcpy(staged, caller, slice.bytes);
    } else {
      memcpy(caller, staged, slice.bytes);
    }
  }
}

void gl_load_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                   uint64_t part) {
  const struct slice slice = slice_of(operation, part);
  if (operation->rows != NULL) {
    copy_rows(gl, stage, operation, slice, operation->submission.kind == GL_REDUCE_SCATTER, true);
  } else {
    memcpy(stage->base, operation->data.base + slice.first, slice.bytes);
  }
}

void gl_unload_stage(const gradlane_context* gl, struct gl_stage* stage, const struct gl_operation* operation,
                     uint64_t part, bool wanted) {
  stage->taken = false;
  if (!wanted) return;
  const struct slice slice = slice_of(operation, part);
  if (operation->rows != NULL) {
    copy_rows(gl, stage, operation, slice, operation->submission.kind == GL_ALL_GATHER, false);
  } else {
    memcpy(operation->data.base + slice.first, stage->base, slice.bytes);
  }
}

void gl_drop_stages(gradlane_context* gl) {
  for (unsigned i = 0; i < GL_STAGES; ++i) gl->stages[i].taken = false;
}
