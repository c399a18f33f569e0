// staging.c - see staging.h (the thread of the context)
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

struct gl_range gl_part_range(const struct gl_operation* operation, uint64_t part) {
  const uint64_t first = part * operation->each;
  const uint64_t left = operation->submission.count - first;
  const uint64_t count = left < operation->each ? left : operation->each;
  return (struct gl_range){.base = operation->data.base + first * operation->width, .bytes = count * operation->width};
}

void gl_load_stage(struct gl_stage* stage, struct gl_range part) { memcpy(stage->base, part.base, part.bytes); }

void gl_unload_stage(struct gl_stage* stage, struct gl_range part, bool wanted) {
  if (wanted) memcpy(part.base, stage->base, part.bytes);
  stage->taken = false;
}

void gl_drop_stages(gradlane_context* gl) {
  for (unsigned i = 0; i < GL_STAGES; ++i) gl->stages[i].taken = false;
}
