// strategies.c - the daemon's strategies, by name (the thread of the context)
#include "client/library/strategies.h"

#include <stdio.h>
#include <string.h>

bool gl_read_strategies(gradlane_context* gl, size_t bytes) {
  const uint32_t count = gl->control->strategies;
  const uint32_t stride = gl->control->strategy_row_bytes;
  gl->strategies.count = 0;
  if (count == 0) return true;
  // The table follows that of the codecs, which was checked before.
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

static bool does(const struct gl_strategy_row* row, enum gl_submission_kind kind) {
  return (row->kinds >> kind & 1u) != 0;
}

static bool owned(const struct gl_operation_traits* traits) {
  return traits->codec != NULL && (traits->codec->flags & GL_CODEC_OWNED) != 0;
}

static bool can(const struct gl_strategy_row* row, const struct gl_operation_traits* traits) {
  return does(row, traits->kind) && (!owned(traits) || (row->flags & GL_STRATEGY_OWNERS) != 0);
}

// Lists the strategies that can carry the operation, such as "ring, direct", as far as they fit; "none" if there is
// none. If `traits` is NULL, lists all strategies.
static const char* list(const gradlane_context* gl, const struct gl_operation_traits* traits, char* text, size_t room) {
  size_t used = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < gl->strategies.count && used < room; ++i) {
    const struct gl_strategy_row* const row = &gl->strategies.rows[i];
    if (traits != NULL && !can(row, traits)) continue;
    const int more = snprintf(text + used, room - used, "%s%s", used != 0 ? ", " : "", row->name);
    used += more > 0 ? (size_t)more : room;
  }
  return text[0] != 0 ? text : "none";
}

// Returns the default strategy of such an operation. NULL: the daemon does not list strategies, or none can carry it.
static const struct gl_strategy_row* usual(const gradlane_context* gl, const struct gl_operation_traits* traits) {
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    const struct gl_strategy_row* const row = &gl->strategies.rows[i];
    if (can(row, traits) && (i == 0 || strcmp(row->name, "ring") == 0)) return row;
  }
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    if (can(&gl->strategies.rows[i], traits)) return &gl->strategies.rows[i];
  }
  return NULL;
}

static gradlane_code refuse_owned(gradlane_context* gl, const struct gl_operation_traits* traits) {
  char names[GL_ERROR_TEXT / 2];
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                 "%s: %.63s does not add, so it needs strategy direct or aggregator; of these the daemon allows %s "
                 "(strategies in its configuration)",
                 traits->call, traits->codec->name, list(gl, traits, names, sizeof(names)));
}

// Checks that ranks can agree. They need links between all of them for that, even if the elements use other links.
static gradlane_code check_links(gradlane_context* gl, const struct gl_operation_traits* traits) {
  if (traits->codec == NULL || (traits->codec->flags & GL_CODEC_AGREES) == 0) return GRADLANE_OK;
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    if ((gl->strategies.rows[i].flags & GL_STRATEGY_LINKS) != 0) return GRADLANE_OK;
  }
  return gl_fail(
      gl, GRADLANE_BAD_ARGUMENT,
      "%s: %.63s needs links between all nodes, as all ranks agree on a number first: put `direct` in `strategies` of "
      "the daemons' configuration",
      traits->call, traits->codec->name);
}

// Finds the strategy of operations that name none.
static gradlane_code find_usual(gradlane_context* gl, const struct gl_operation_traits* traits,
                                const struct gl_strategy_row** strategy) {
  *strategy = usual(gl, traits);
  const bool told = gl->strategies.count != 0;
  if (*strategy == NULL && told && owned(traits)) return refuse_owned(gl, traits);
  if (*strategy == NULL && traits->kind >= GL_REDUCE) {
    return gl_fail(
        gl, GRADLANE_BAD_ARGUMENT,
        "%s: this operation needs links between all nodes: put `direct` in `strategies` of the daemons' configuration",
        traits->call);
  }
  return told ? check_links(gl, traits) : GRADLANE_OK;
}

gradlane_code gl_find_strategy(gradlane_context* gl, const char* name, const struct gl_operation_traits* traits,
                               const struct gl_strategy_row** strategy) {
  if (name == NULL) return find_usual(gl, traits, strategy);
  const struct gl_strategy_row* found = NULL;
  for (uint32_t i = 0; i < gl->strategies.count && found == NULL; ++i) {
    if (strcmp(gl->strategies.rows[i].name, name) == 0) found = &gl->strategies.rows[i];
  }
  char names[GL_ERROR_TEXT / 2];
  if (found == NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: strategy '%.40s': the daemon allows %s (strategies in its configuration)", traits->call, name,
                   gl->strategies.count != 0 ? list(gl, NULL, names, sizeof(names)) : "none by name");
  }
  if (!does(found, traits->kind)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: strategy %s cannot do this operation; allowed ones that can (strategies in the daemon's "
                   "configuration): %s",
                   traits->call, name, list(gl, traits, names, sizeof(names)));
  }
  if (!can(found, traits)) return refuse_owned(gl, traits);
  *strategy = found;
  return check_links(gl, traits);
}

// ---- Questions of the caller

size_t gradlane_strategies(const gradlane_context* gl) { return gl != NULL ? gl->strategies.count : 0; }

const char* gradlane_get_strategy(const gradlane_context* gl, size_t number) {
  return number < gradlane_strategies(gl) ? gl->strategies.rows[number].name : NULL;
}
