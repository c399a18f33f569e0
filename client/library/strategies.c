// strategies.c - the daemon's strategies, by name (the thread of the context)
#include "client/library/strategies.h"

#include <stdio.h>
#include <string.h>

bool gl_read_strategies(gradlane_context* gl, size_t bytes) {
  const uint32_t count = gl->control->strategies;
  const uint32_t stride = gl->control->strategy_row_bytes;
  gl->strategies.count = 0;
  if (count == 0) return true;
  // Behind the codecs, whose table was looked at before.
  const size_t codecs = (size_t)gl->codecs.count * gl->control->codec_row_bytes;
  const size_t from = gl_control_bytes(gl->welcome.lanes) + codecs;
  if (count > GL_MAX_STRATEGIES || stride < sizeof(struct gl_strategy_row) || from > bytes ||
      (bytes - from) / stride < count) {
    return false;
  }
  const uint8_t* const table = (const uint8_t*)gl->control + from;
  for (uint32_t i = 0; i < count; ++i) {
    struct gl_strategy_row* const row = &gl->strategies.rows[i];
    memcpy(row, table + (size_t)i * stride, sizeof(*row));
    row->name[GL_NAME - 1] = 0;
  }
  gl->strategies.count = count;
  return true;
}

static bool can(const struct gl_strategy_row* row, enum gl_submission_kind kind) {
  return (row->kinds >> kind & 1u) != 0;
}

// The names of those that can do this, "ring, direct", as far as there is room. `kind` -1: of all.
static void list(const gradlane_context* gl, int kind, char* text, size_t room) {
  size_t used = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < gl->strategies.count && used < room; ++i) {
    const struct gl_strategy_row* const row = &gl->strategies.rows[i];
    if (kind >= 0 && !can(row, (enum gl_submission_kind)kind)) continue;
    const int more = snprintf(text + used, room - used, "%s%s", used != 0 ? ", " : "", row->name);
    used += more > 0 ? (size_t)more : room;
  }
}

// Of operations that name none. NULL: the daemon does not tell.
static const struct gl_strategy_row* usual(const gradlane_context* gl, enum gl_submission_kind kind) {
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    const struct gl_strategy_row* const row = &gl->strategies.rows[i];
    if (can(row, kind) && (i == 0 || strcmp(row->name, "ring") == 0)) return row;
  }
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    if (can(&gl->strategies.rows[i], kind)) return &gl->strategies.rows[i];
  }
  return NULL;
}

gradlane_code gl_find_strategy(gradlane_context* gl, const char* call, const char* name, enum gl_submission_kind kind,
                               const struct gl_strategy_row** strategy) {
  if (name == NULL) {
    *strategy = usual(gl, kind);
    if (*strategy != NULL || kind < GL_REDUCE) return GRADLANE_OK;
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: it needs links between all nodes: put `direct` in `strategies` of the daemons' configuration",
                   call);
  }
  const struct gl_strategy_row* found = NULL;
  for (uint32_t i = 0; i < gl->strategies.count && found == NULL; ++i) {
    if (strcmp(gl->strategies.rows[i].name, name) == 0) found = &gl->strategies.rows[i];
  }
  char names[GL_ERROR_TEXT / 2];
  if (found == NULL) {
    list(gl, -1, names, sizeof(names));
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: strategy '%.40s': the daemon allows %s (strategies in its configuration)", call, name,
                   names[0] != 0 ? names : "none to be named");
  }
  if (!can(found, kind)) {
    list(gl, (int)kind, names, sizeof(names));
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: strategy %s cannot do that; those that can, and that the daemon allows (strategies in its "
                   "configuration): %s",
                   call, name, names[0] != 0 ? names : "none");
  }
  *strategy = found;
  return GRADLANE_OK;
}

// ---- Questions of the caller

size_t gradlane_strategies(const gradlane_context* gl) { return gl != NULL ? gl->strategies.count : 0; }

const char* gradlane_get_strategy(const gradlane_context* gl, size_t number) {
  return number < gradlane_strategies(gl) ? gl->strategies.rows[number].name : NULL;
}
