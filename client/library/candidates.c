// candidates.c - the ways that operations which leave it to the library may go (the thread of the context)
#include "client/library/candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/buffers.h"
#include "client/library/codecs.h"
#include "client/library/kinds.h"
#include "client/library/requests.h"
#include "client/library/strategies.h"

// ---- Tables of the daemon

static size_t table_bytes(uint32_t rows, uint32_t row_bytes) { return (size_t)rows * row_bytes; }

// The rows of a table at `at`, which ends before the next one's. False: it makes no sense.
static bool table_fits(size_t at, size_t bytes, uint32_t rows, uint32_t stride, uint32_t most, size_t least) {
  return rows <= most && stride >= least && stride % 8 == 0 && at % 8 == 0 && at <= bytes &&
         (bytes - at) / stride >= rows;
}

bool gl_read_ways(gradlane_context* gl, size_t bytes) {
  const struct gl_control* const control = gl->control;
  struct gl_choices* const choices = &gl->choices;
  const uint32_t ways = control->ways;
  const uint32_t plan_rows = control->plan_rows;
  const uint32_t reports = control->reports;
  const uint32_t way_bytes = control->way_row_bytes;
  const uint32_t plan_bytes = control->plan_row_bytes;
  if (ways == 0) return true;
  size_t at = gl_control_bytes(gl->welcome.lanes) + table_bytes(gl->codecs.count, control->codec_row_bytes) +
              table_bytes(gl->strategies.count, control->strategy_row_bytes);
  if (!table_fits(at, bytes, ways, way_bytes, GL_MAX_WAYS, sizeof(struct gl_way_row))) return false;
  uint8_t* const base = (uint8_t*)gl->control;
  for (uint32_t i = 0; i < ways; ++i) {
    struct gl_way_row* const row = &choices->rows[i];
    memcpy(row, base + at + table_bytes(i, way_bytes), sizeof(*row));
    row->name[GL_NAME - 1] = 0;
  }
  at += table_bytes(ways, way_bytes);
  if (plan_rows > 0 && !table_fits(at, bytes, plan_rows, plan_bytes, GL_MAX_PLAN_ROWS, sizeof(struct gl_plan_row)))
    return false;
  for (uint32_t i = 0; i < plan_rows; ++i) {
    struct gl_plan_row* const row = &choices->plan[i];
    memcpy(row, base + at + table_bytes(i, plan_bytes), sizeof(*row));
    row->codec[GL_NAME - 1] = 0;
  }
  at += table_bytes(plan_rows, plan_rows > 0 ? plan_bytes : 0);
  // Rows of another length than ours we leave alone.
  if (reports > 0 && control->report_row_bytes == sizeof(struct gl_report_row)) {
    if (!table_fits(at, bytes, reports, control->report_row_bytes, GL_MAX_REPORTS, sizeof(struct gl_report_row)))
      return false;
    choices->reports = (struct gl_report_row*)(base + at);
    choices->report_count = reports;
  }
  choices->row_count = ways;
  choices->plan_count = plan_rows;
  return true;
}

// ---- Sets

static bool does_kind(const gradlane_context* gl, uint32_t strategy, enum gl_submission_kind kind, bool owners) {
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    const struct gl_strategy_row* const row = &gl->strategies.rows[i];
    if (row->code != strategy) continue;
    return (row->kinds >> kind & 1u) != 0 && (!owners || (row->flags & GL_STRATEGY_OWNERS) != 0);
  }
  return false;
}

// The name that keeps the wish's bound: the row's own, or the same with another B.
static bool way_name(const gradlane_context* gl, const struct gl_way_row* row, const struct gl_wish* wish, char* name) {
  if (row->bound == GL_BOUND_EXACT || row->scales == 0) {
    (void)snprintf(name, GL_NAME, "%s", row->name);
    return row->bound == GL_BOUND_EXACT || row->bits >= wish->bits;
  }
  const struct gl_codec_row* const codec = gl_codec_row_of(gl, row->codec);
  if (codec == NULL || wish->bits < codec->least || wish->bits > codec->most) return false;
  (void)snprintf(name, GL_NAME, "%.31s:%.15s%u", codec->word, codec->prefix, wish->bits);
  return true;
}

// Of rows of one strategy and codec, which predict for several B: the next above the wish's, else the largest.
static bool is_nearest(const gradlane_context* gl, const struct gl_way_row* row, unsigned bits) {
  if (row->scales == 0) return true;
  for (uint32_t i = 0; i < gl->choices.row_count; ++i) {
    const struct gl_way_row* const other = &gl->choices.rows[i];
    if (other == row || other->strategy != row->strategy || other->codec != row->codec || other->scales == 0) continue;
    if (row->bits < bits ? other->bits > row->bits : other->bits >= bits && other->bits < row->bits) return false;
  }
  return true;
}

// Which of the set's it is now. -1: there are too many.
static int add_way(struct gl_choice_set* set, const struct gl_way* way) {
  for (unsigned i = 0; i < set->count; ++i) {
    const struct gl_way* const it = &set->ways[i];
    if (it->strategy == way->strategy && it->codec == way->codec && it->arguments == way->arguments) return (int)i;
  }
  if (set->count == GL_ROUND_WAYS) return -1;
  set->ways[set->count] = *way;
  return (int)set->count++;
}

// The row of this strategy whose codec is this one, or exact. -1: there is none.
static int way_row_of(const gradlane_context* gl, uint32_t strategy, const struct gl_codec_name* codec) {
  int exact = -1;
  for (uint32_t i = 0; i < gl->choices.row_count; ++i) {
    const struct gl_way_row* const row = &gl->choices.rows[i];
    if (row->strategy != strategy) continue;
    if (codec != NULL && row->codec == codec->id) return (int)i;
    if (row->bound == GL_BOUND_EXACT && exact < 0) exact = (int)i;
  }
  return exact;
}

// By one codec, or none, each strategy that can; the one of operations that name none first.
static gradlane_code add_strategies(gradlane_context* gl, const struct gl_choice_of* of,
                                    const struct gl_codec_name* codec, struct gl_choice_set* set) {
  const struct gl_cargo cargo = {.call = gl_kind_name(of->kind), .kind = of->kind, .codec = codec};
  const struct gl_strategy_row* first = NULL;
  const gradlane_code code = gl_find_strategy(gl, of->strategy, &cargo, &first);
  if (code != GRADLANE_OK || first == NULL) return code;
  const bool owners = codec != NULL && (codec->flags & GL_CODEC_OWNED) != 0;
  struct gl_way way = {.exact = codec == NULL || (codec->flags & GL_CODEC_EXACT) != 0};
  if (codec != NULL) {
    way.codec = codec->id;
    way.arguments = codec->arguments;
    memcpy(way.name, codec->name, GL_NAME);
  }
  for (uint32_t i = 0; i <= gl->strategies.count; ++i) {
    const struct gl_strategy_row* const row = i == 0 ? first : &gl->strategies.rows[i - 1];
    if (!does_kind(gl, row->code, of->kind, owners) || (of->strategy != NULL && row != first)) continue;
    way.strategy = row->code;
    way.row = way_row_of(gl, row->code, codec);
    (void)add_way(set, &way);
  }
  return GRADLANE_OK;
}

// Error feedback is for one array of states of codecs that add whole numbers.
static bool takes_residual(const struct gl_codec_name* codec) {
  const uint32_t wanted = GL_CODEC_FEEDBACK | GL_CODEC_EXACT_SUMS;
  return (codec->flags & wanted) == wanted && codec->states == 1;
}

static gradlane_code add_row(gradlane_context* gl, const struct gl_choice_of* of, int number,
                             struct gl_choice_set* set) {
  const struct gl_way_row* const row = &gl->choices.rows[number];
  if (row->bound == GL_BOUND_EXACT || row->bound != of->wish->bound) return GRADLANE_OK;
  if (of->strategy != NULL && row->strategy != set->ways[0].strategy) return GRADLANE_OK;
  struct gl_way way = {.strategy = row->strategy, .row = number};
  if (!way_name(gl, row, of->wish, way.name) || !is_nearest(gl, row, of->wish->bits)) return GRADLANE_OK;
  struct gl_codec_pair found;
  const gradlane_code code = gl_find_codecs(gl, way.name, &found);
  if (code == GRADLANE_BAD_ARGUMENT) return GRADLANE_OK;  // its shortest run does not fit a packet, say
  if (code != GRADLANE_OK) return code;
  if (!does_kind(gl, row->strategy, of->kind, (found.there.flags & GL_CODEC_OWNED) != 0)) return GRADLANE_OK;
  if (of->residual && !takes_residual(&found.there)) return GRADLANE_OK;
  way.codec = found.there.id;
  way.arguments = found.there.arguments;
  (void)add_way(set, &way);
  return GRADLANE_OK;
}

static gradlane_code fill_set(gradlane_context* gl, const struct gl_choice_of* of, struct gl_choice_set* set) {
  if (of->wish == NULL) return add_strategies(gl, of, of->codec, set);
  struct gl_codec_pair raw;
  const char* const exact = gl_codec_with(gl, GL_CODEC_EXACT, NULL);
  gradlane_code code = gl_find_codecs(gl, exact != NULL ? exact : "raw", &raw);
  if (code == GRADLANE_OK) code = add_strategies(gl, of, &raw.there, set);
  if (code != GRADLANE_OK || set->count == 0) return code;
  for (uint32_t i = 0; i < gl->choices.row_count && code == GRADLANE_OK; ++i) code = add_row(gl, of, (int)i, set);
  return code;
}

// ---- The plan

// The exact way by this strategy; of a set whose codec is not to be chosen, the one way. -1: there is none.
static int way_by(const struct gl_choice_set* set, uint32_t strategy) {
  for (unsigned i = 0; i < set->count; ++i) {
    if (set->ways[i].strategy == strategy && (set->ways[i].exact || !set->codes || !set->asks)) return (int)i;
  }
  return -1;
}

// The way that a row of the plan names, as one more of the set. -1: such operations cannot go by it.
static int planned_way(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_plan_row* row,
                       struct gl_choice_set* set) {
  struct gl_codec_pair found;
  if (of->strategy != NULL && row->strategy != set->ways[0].strategy) return -1;
  if (gl_find_codecs(gl, row->codec, &found) != GRADLANE_OK) return -1;
  if (!does_kind(gl, row->strategy, of->kind, (found.there.flags & GL_CODEC_OWNED) != 0)) return -1;
  const bool exact = (found.there.flags & GL_CODEC_EXACT) != 0;
  if (of->residual && !exact && !takes_residual(&found.there)) return -1;
  struct gl_way way = {.strategy = row->strategy,
                       .codec = found.there.id,
                       .exact = exact,
                       .arguments = found.there.arguments,
                       .row = way_row_of(gl, row->strategy, &found.there)};
  memcpy(way.name, row->codec, GL_NAME);
  return add_way(set, &way);
}

// Whatever the plan says, nothing is rounded more than was asked for.
static struct gl_planned plan_for(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_plan_row* row,
                                  struct gl_choice_set* set) {
  const int exact = way_by(set, row->strategy);
  int way = -1;
  bool kept = true;
  if (of->wish != NULL) {
    kept = row->bound == GL_BOUND_EXACT || (row->bound == of->wish->bound && row->bits >= of->wish->bits);
    if (kept) way = planned_way(gl, of, row, set);
  }
  if (way < 0) way = exact;
  if (way < 0) return (struct gl_planned){.way = 0, .why = GL_REASON_NO_PLAN};
  return (struct gl_planned){.way = (uint8_t)way, .why = kept ? GL_REASON_PLAN : GL_REASON_ROUNDS};
}

static void apply_plan(gradlane_context* gl, const struct gl_choice_of* of, struct gl_choice_set* set) {
  for (uint32_t i = 0; i < gl->choices.plan_count; ++i) set->plan[i] = plan_for(gl, of, &gl->choices.plan[i], set);
}

// ---- Sets that there are

// What ranks agree in, and its place among what the daemon shares. It may lie in one segment with buffers of the
// caller, which then stays as long as the context.
static gradlane_code make_memory(gradlane_context* gl) {
  struct gl_choices* const choices = &gl->choices;
  if (choices->memory != NULL) return GRADLANE_OK;
  void* memory = NULL;
  const gradlane_code code =
      gradlane_alloc(gl, (GL_PREDICTIONS + GL_MAX_CLASSES * GL_TRIALS) * sizeof(double), &memory);
  if (code != GRADLANE_OK) return code;
  const struct gl_buffer* const buffer = gl_find_buffer(gl, memory);
  choices->memory = memory;
  choices->segment = buffer->segment;
  choices->offset = (uint64_t)((uint8_t*)memory - gl->segments[buffer->segment].base);
  return GRADLANE_OK;
}

// The one strategy that the operation may go by. 0: any.
static uint32_t only_strategy(const gradlane_context* gl, const struct gl_choice_of* of) {
  for (uint32_t i = 0; of->strategy != NULL && i < gl->strategies.count; ++i) {
    if (strcmp(gl->strategies.rows[i].name, of->strategy) == 0) return gl->strategies.rows[i].code;
  }
  return 0;
}

static bool is_set_of(const struct gl_choice_set* it, const struct gl_choice_of* of, uint32_t strategy) {
  const uint8_t codec = of->codec != NULL ? of->codec->id : 0;
  const uint64_t arguments = of->codec != NULL ? of->codec->arguments : 0;
  return it->kind == of->kind && it->codes == (of->wish != NULL || of->codec != NULL) && it->residual == of->residual &&
         it->strategy == strategy && it->codec == codec && it->arguments == arguments &&
         strncmp(it->asked, of->asked, sizeof(it->asked) - 1) == 0;
}

static gradlane_code make_set(gradlane_context* gl, const struct gl_choice_of* of, uint32_t strategy,
                              const struct gl_choice_set** set) {
  struct gl_choices* const choices = &gl->choices;
  gradlane_code code = make_memory(gl);
  if (code != GRADLANE_OK) return code;
  // Which operations are counted is a matter of classes, which are the same on all ranks. Sets may go at any time.
  if (choices->set_count >= GL_USUAL_SETS) gl_drop_sets(gl);
  struct gl_choice_set* const made = calloc(1, sizeof(*made));
  if (made == NULL) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for what there is to choose from");
  made->kind = (uint8_t)of->kind;
  made->codes = of->wish != NULL || of->codec != NULL;
  made->residual = of->residual;
  made->asks = of->wish != NULL && of->wish->bound != GL_BOUND_EXACT;
  made->strategy = strategy;
  if (of->codec != NULL) {
    made->codec = of->codec->id;
    made->arguments = of->codec->arguments;
  }
  (void)snprintf(made->asked, sizeof(made->asked), "%.63s", of->asked);
  code = fill_set(gl, of, made);
  if (code != GRADLANE_OK || made->count == 0) {
    free(made);
    return code;
  }
  apply_plan(gl, of, made);
  made->next = choices->sets;
  choices->sets = made;
  ++choices->set_count;
  *set = made;
  return GRADLANE_OK;
}

gradlane_code gl_find_set(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_choice_set** set) {
  struct gl_choices* const choices = &gl->choices;
  *set = NULL;
  // Alone there is nothing to send; and ranks agree in one operation, of which the daemon must take so much.
  if (gl->welcome.world < 2 || choices->row_count == 0) return GRADLANE_OK;
  if (gl->welcome.max_bytes < GL_PREDICTIONS * sizeof(double)) return GRADLANE_OK;
  const uint32_t strategy = only_strategy(gl, of);
  for (const struct gl_choice_set* it = choices->sets; it != NULL; it = it->next) {
    if (!is_set_of(it, of, strategy)) continue;
    *set = it;
    return GRADLANE_OK;
  }
  return make_set(gl, of, strategy, set);
}
