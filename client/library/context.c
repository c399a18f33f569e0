// context.c - questions about a context (the thread of the context)
#include "client/library/context.h"

#include <string.h>

// Bytes of gradlane_figures in version 1.
enum { kLeastFigures = offsetof(gradlane_figures, retransmitted) + sizeof(uint64_t) };

int gradlane_version(void) { return GRADLANE_API_VERSION; }

int gradlane_rank(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.rank : -1; }

int gradlane_world(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.world : -1; }

int gradlane_local_reduce(const gradlane_context* gl) {
  if (gl == NULL || (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) == 0) return 0;
  return gl->welcome.trainers > 1 ? (int)gl->welcome.trainers : 1;
}

const char* gradlane_codec(const gradlane_context* gl) { return gl != NULL ? gl->welcome.codec : ""; }

gradlane_code gradlane_get_figures(gradlane_context* gl, gradlane_figures* figures) {
  GL_LOCK(gl);
  const gradlane_code code = gl_check_context(gl, "gradlane_get_figures");
  if (code != GRADLANE_OK) return code;
  gradlane_figures all = {.struct_size = sizeof(all)};
  if (figures == NULL || !gl_read_struct(&all, sizeof(all), kLeastFigures, figures)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_get_figures: struct_size is %zu; set it to %zu",
                   figures != NULL ? figures->struct_size : 0, sizeof(all));
  }
  all.operations = gl->operations;
  all.data_bytes = all.data_packets = all.retransmitted = 0;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    const struct gl_lane* const lane = &gl->lanes[i];
    all.data_bytes += __atomic_load_n(&lane->data_bytes, __ATOMIC_RELAXED);
    all.data_packets += __atomic_load_n(&lane->data_packets, __ATOMIC_RELAXED);
    all.retransmitted += __atomic_load_n(&lane->retransmitted, __ATOMIC_RELAXED);
  }
  all.lossy_values = gl->losses.total.values;
  all.lossy_zeroed = gl->losses.total.zeroed;
  all.lossy_squares = gl->losses.total.squares;
  all.lossy_lost_squares = gl->losses.total.lost_squares;
  all.hashed_results = gl->hashed_results;
  all.verified_blocks = gl->verified_blocks;
  all.unverified_blocks = gl->unverified_blocks;
  all.results_hash = gl->results_hash;
  memcpy(figures, &all, all.struct_size);
  return GRADLANE_OK;
}
