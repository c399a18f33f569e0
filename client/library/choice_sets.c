// choice_sets.c - the candidates that a context's tuner can choose from (the thread of the context)
#include "client/library/choice_sets.h"

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

// Returns whether a table at `at` lies within a segment of `bytes` bytes, and has at most `most` rows of at least
// `least` bytes.
static bool table_fits(size_t at, size_t bytes, uint32_t rows, uint32_t stride, uint32_t most, size_t least) {
  return rows <= most && stride >= least && stride % 8 == 0 && at % 8 == 0 && at <= bytes &&
         (bytes - at) / stride >= rows;
}

bool gl_read_candidates(gradlane_context* gl, size_t bytes) {
  const struct gl_control* const control = gl->control;
  struct gl_choices* const choices = &gl->choices;
  const uint32_t candidates = control->ways;
  const uint32_t plan_rows = control->plan_rows;
  const uint32_t reports = control->reports;
  const uint32_t way_bytes = control->way_row_bytes;
  const uint32_t plan_bytes = control->plan_row_bytes;
  if (candidates == 0) return true;
  size_t at = gl_control_bytes(gl->welcome.lanes) + table_bytes(gl->codecs.count, control->codec_row_bytes) +
              table_bytes(gl->strategies.count, control->strategy_row_bytes);
  if (!table_fits(at, bytes, candidates, way_bytes, GL_MAX_WAYS, sizeof(struct gl_way_row))) return false;
  uint8_t* const base = (uint8_t*)gl->control;
  for (uint32_t i = 0; i < candidates; ++i) {
    struct gl_way_row* const row = &choices->rows[i];
    memcpy(row, base + at + table_bytes(i, way_bytes), sizeof(*row));
    row->name[GL_NAME - 1] = 0;
  }
  at += table_bytes(candidates, way_bytes);
  if (plan_rows > 0 && !table_fits(at, bytes, plan_rows, plan_bytes, GL_MAX_PLAN_ROWS, sizeof(struct gl_plan_row)))
    return false;
  for (uint32_t i = 0; i < plan_rows; ++i) {
    struct gl_plan_row* const row = &choices->plan[i];
    memcpy(row, base + at + table_bytes(i, plan_bytes), sizeof(*row));
    row->codec[GL_NAME - 1] = 0;
  }
  at += table_bytes(plan_rows, plan_rows > 0 ? plan_bytes : 0);
  // If the daemon's report rows have another length, the library writes none.
  if (reports > 0 && control->report_row_bytes == sizeof(struct gl_report_row)) {
    if (!table_fits(at, bytes, reports, control->report_row_bytes, GL_MAX_REPORTS, sizeof(struct gl_report_row)))
      return false;
    choices->reports = (struct gl_report_row*)(base + at);
    choices->report_count = reports;
  }
  choices->row_count = candidates;
  choices->plan_count = plan_rows;
  return true;
}

// ---- Candidates

static int find_codec(void* of, const char* name, struct gl_codec_name* codec) {
  struct gl_codec_pair pair;
  const gradlane_code code = gl_find_codecs((gradlane_context*)of, name, &pair);
  if (code == GRADLANE_OK) *codec = pair.there;
  return code == GRADLANE_BAD_ARGUMENT ? GL_NOT_FOUND : code == GRADLANE_OK ? GL_FOUND : (int)code;
}

static gradlane_code fill_set(gradlane_context* gl, const struct gl_choice_of* of, struct gl_choice_set* set) {
  struct gl_codec_pair raw;
  const char* const exact = gl_codec_with(gl, GL_CODEC_EXACT, NULL);
  gradlane_code code = of->asks != NULL ? gl_find_codecs(gl, exact != NULL ? exact : "raw", &raw) : GRADLANE_OK;
  if (code != GRADLANE_OK) return code;
  const struct gl_codec_name* const codec = of->asks != NULL ? &raw.there : of->codec;
  const struct gl_operation_traits traits = {.call = gl_kind_name(of->kind), .kind = of->kind, .codec = codec};
  const struct gl_strategy_row* first = NULL;
  code = gl_find_strategy(gl, of->strategy, &traits, &first);
  if (code != GRADLANE_OK || first == NULL) return code;
  const struct gl_tuning_tables tables = {.candidates = gl->choices.rows,
                                          .way_count = gl->choices.row_count,
                                          .plan = gl->choices.plan,
                                          .plan_count = gl->choices.plan_count,
                                          .strategies = gl->strategies.rows,
                                          .strategy_count = gl->strategies.count,
                                          .codecs = gl->codecs.rows,
                                          .codec_count = gl->codecs.count};
  const struct gl_tuning_request request = {.kind = of->kind,
                                            .asked = of->asks,
                                            .codec = codec,
                                            .strategy = first->code,
                                            .only = of->strategy != NULL,
                                            .residual = of->residual};
  const struct gl_codec_finder finder = {.find = find_codec, .of = gl};
  return (gradlane_code)gl_fill_candidates(&tables, &request, &finder, set);
}

// ---- Sets that there are

// Allocates the memory in which ranks agree, and finds its segment and offset. If buffers of the caller lie in the same
// segment, the segment stays as long as the context.
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

// Returns the only strategy that the operation may use; 0: any.
static uint32_t only_strategy(const gradlane_context* gl, const struct gl_choice_of* of) {
  for (uint32_t i = 0; of->strategy != NULL && i < gl->strategies.count; ++i) {
    if (strcmp(gl->strategies.rows[i].name, of->strategy) == 0) return gl->strategies.rows[i].code;
  }
  return 0;
}

static bool is_set_of(const struct gl_choice_set* it, const struct gl_choice_of* of, uint32_t strategy) {
  const uint8_t codec = of->codec != NULL ? of->codec->id : 0;
  const uint64_t arguments = of->codec != NULL ? of->codec->arguments : 0;
  return it->kind == of->kind && it->codes == (of->asks != NULL || of->codec != NULL) && it->residual == of->residual &&
         it->strategy == strategy && it->codec == codec && it->arguments == arguments &&
         strncmp(it->asked, of->asked, sizeof(it->asked) - 1) == 0;
}

static gradlane_code make_set(gradlane_context* gl, const struct gl_choice_of* of, uint32_t strategy,
                              const struct gl_choice_set** set) {
  struct gl_choices* const choices = &gl->choices;
  gradlane_code code = make_memory(gl);
  if (code != GRADLANE_OK) return code;
  // Sets may be dropped at any time: operations are counted in classes, which are the same on all ranks.
  if (choices->set_count >= GL_USUAL_SETS) gl_drop_sets(gl);
  struct gl_choice_set* const made = calloc(1, sizeof(*made));
  if (made == NULL) return gl_fail(gl, GRADLANE_NO_MEMORY, "no memory for the list of codecs and strategies");
  made->kind = (uint8_t)of->kind;
  made->codes = of->asks != NULL || of->codec != NULL;
  made->residual = of->residual;
  made->asks = of->asks != NULL && of->asks->bound != GL_BOUND_EXACT;
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
  made->next = choices->sets;
  choices->sets = made;
  ++choices->set_count;
  *set = made;
  return GRADLANE_OK;
}

gradlane_code gl_find_set(gradlane_context* gl, const struct gl_choice_of* of, const struct gl_choice_set** set) {
  struct gl_choices* const choices = &gl->choices;
  *set = NULL;
  // Nothing is chosen for a single rank, as it sends nothing. The daemon must take the all-reduce by which ranks agree.
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
