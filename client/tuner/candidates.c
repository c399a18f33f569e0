// candidates.c - the candidates of operations that leave their strategy or codec to the library (pure)
#include "client/tuner/candidates.h"

#include <stdio.h>
#include <string.h>

static const struct gl_codec_row* codec_row_of(const struct gl_tuning_tables* tables, uint8_t id) {
  for (uint32_t i = 0; i < tables->codec_count; ++i) {
    if (tables->codecs[i].id == id) return &tables->codecs[i];
  }
  return NULL;
}

static bool does_kind(const struct gl_tuning_tables* tables, uint32_t strategy, enum gl_submission_kind kind,
                      bool owners) {
  for (uint32_t i = 0; i < tables->strategy_count; ++i) {
    const struct gl_strategy_row* const row = &tables->strategies[i];
    if (row->code != strategy) continue;
    return (row->kinds >> kind & 1u) != 0 && (!owners || (row->flags & GL_STRATEGY_OWNERS) != 0);
  }
  return false;
}

// Writes the name of a codec that keeps the bound: the one in the row, or the same codec with another B. Returns false
// if neither does.
static bool candidate_name(const struct gl_tuning_tables* tables, const struct gl_way_row* row,
                           const struct gl_auto* asked, char* name) {
  if (row->bound == GL_BOUND_EXACT || row->scales == 0) {
    (void)snprintf(name, GL_NAME, "%s", row->name);
    return row->bound == GL_BOUND_EXACT || row->bits >= asked->bits;
  }
  const struct gl_codec_row* const codec = codec_row_of(tables, row->codec);
  if (codec == NULL || asked->bits < codec->least || asked->bits > codec->most) return false;
  (void)snprintf(name, GL_NAME, "%.31s:%.15s%u", codec->word, codec->prefix, asked->bits);
  return true;
}

// Returns whether a row predicts best for `bits`. Rows of one strategy and codec predict for several B. The best row
// has the least B that is not below `bits`. If all are below, it has the largest B.
static bool is_nearest(const struct gl_tuning_tables* tables, const struct gl_way_row* row, unsigned bits) {
  if (row->scales == 0) return true;
  for (uint32_t i = 0; i < tables->way_count; ++i) {
    const struct gl_way_row* const other = &tables->candidates[i];
    if (other == row || other->strategy != row->strategy || other->codec != row->codec || other->scales == 0) continue;
    if (row->bits < bits ? other->bits > row->bits : other->bits >= bits && other->bits < row->bits) return false;
  }
  return true;
}

// Adds a candidate to the set, unless the set has it already. Returns its index; -1: there are too many.
static int add_candidate(struct gl_choice_set* set, const struct gl_candidate* candidate) {
  for (unsigned i = 0; i < set->count; ++i) {
    const struct gl_candidate* const it = &set->candidates[i];
    if (it->strategy == candidate->strategy && it->codec == candidate->codec && it->arguments == candidate->arguments)
      return (int)i;
  }
  if (set->count == GL_MAX_CANDIDATES) return -1;
  set->candidates[set->count] = *candidate;
  return (int)set->count++;
}

// Returns the row of this strategy that has this codec, else the first exact one. -1: there is none.
static int candidate_row_of(const struct gl_tuning_tables* tables, uint32_t strategy,
                            const struct gl_codec_name* codec) {
  int exact = -1;
  for (uint32_t i = 0; i < tables->way_count; ++i) {
    const struct gl_way_row* const row = &tables->candidates[i];
    if (row->strategy != strategy) continue;
    if (codec != NULL && row->codec == codec->id) return (int)i;
    if (row->bound == GL_BOUND_EXACT && exact < 0) exact = (int)i;
  }
  return exact;
}

// Adds one candidate for each strategy that can carry the codec, or elements without a codec. The strategy of the
// request comes first.
static void add_strategies(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                           struct gl_choice_set* set) {
  const struct gl_codec_name* const codec = request->codec;
  const bool owners = codec != NULL && (codec->flags & GL_CODEC_OWNED) != 0;
  struct gl_candidate candidate = {.exact = codec == NULL || (codec->flags & GL_CODEC_EXACT) != 0};
  if (codec != NULL) {
    candidate.codec = codec->id;
    candidate.arguments = codec->arguments;
    memcpy(candidate.name, codec->name, GL_NAME);
  }
  for (uint32_t i = 0; i <= tables->strategy_count; ++i) {
    const uint32_t strategy = i == 0 ? request->strategy : tables->strategies[i - 1].code;
    if (!does_kind(tables, strategy, request->kind, owners)) continue;
    if (request->only && strategy != request->strategy) continue;
    candidate.strategy = strategy;
    candidate.row = candidate_row_of(tables, strategy, codec);
    (void)add_candidate(set, &candidate);
  }
}

// Returns whether `auto` may use the codec with a residual: its sums must be exact, and the residual a single array.
static bool takes_residual(const struct gl_codec_name* codec) {
  const uint32_t wanted = GL_CODEC_FEEDBACK | GL_CODEC_EXACT_SUMS;
  return (codec->flags & wanted) == wanted && codec->states == 1;
}

static int add_row(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                   const struct gl_codec_finder* finder, int number, struct gl_choice_set* set) {
  const struct gl_way_row* const row = &tables->candidates[number];
  if (row->bound != GL_BOUND_EXACT && row->bound != request->asked->bound) return GL_FOUND;
  if (request->only && row->strategy != set->candidates[0].strategy) return GL_FOUND;
  struct gl_candidate candidate = {.strategy = row->strategy, .row = number};
  if (!candidate_name(tables, row, request->asked, candidate.name)) return GL_FOUND;
  if (!is_nearest(tables, row, request->asked->bits)) return GL_FOUND;
  struct gl_codec_name found;
  const int code = finder->find(finder->of, candidate.name, &found);
  if (code == GL_NOT_FOUND) return GL_FOUND;  // for example, its shortest run does not fit a packet
  if (code != GL_FOUND) return code;
  if (!does_kind(tables, row->strategy, request->kind, (found.flags & GL_CODEC_OWNED) != 0)) return GL_FOUND;
  candidate.exact = (found.flags & GL_CODEC_EXACT) != 0;
  if (request->residual && !candidate.exact && !takes_residual(&found)) return GL_FOUND;
  candidate.codec = found.id;
  candidate.arguments = found.arguments;
  (void)add_candidate(set, &candidate);
  return GL_FOUND;
}

// ---- The plan

// Returns the first exact candidate with this strategy. If operations do not ask for a codec that may round, it is the
// only candidate with this strategy. -1: there is none.
static int candidate_by(const struct gl_choice_set* set, uint32_t strategy) {
  for (unsigned i = 0; i < set->count; ++i) {
    if (set->candidates[i].strategy == strategy && (set->candidates[i].exact || !set->codes || !set->asks))
      return (int)i;
  }
  return -1;
}

// Adds the candidate that a row of the plan names to the set. Returns its index; -1: such operations cannot use it.
static int planned_candidate(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                             const struct gl_codec_finder* finder, const struct gl_plan_row* row,
                             struct gl_choice_set* set) {
  struct gl_codec_name found;
  if (request->only && row->strategy != set->candidates[0].strategy) return -1;
  if (finder->find(finder->of, row->codec, &found) != GL_FOUND) return -1;
  if (!does_kind(tables, row->strategy, request->kind, (found.flags & GL_CODEC_OWNED) != 0)) return -1;
  const bool exact = (found.flags & GL_CODEC_EXACT) != 0;
  if (request->residual && !exact && !takes_residual(&found)) return -1;
  struct gl_candidate candidate = {.strategy = row->strategy,
                                   .codec = found.id,
                                   .exact = exact,
                                   .arguments = found.arguments,
                                   .row = candidate_row_of(tables, row->strategy, &found)};
  memcpy(candidate.name, row->codec, GL_NAME);
  return add_candidate(set, &candidate);
}

static struct gl_planned plan_for(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                                  const struct gl_codec_finder* finder, const struct gl_plan_row* row,
                                  struct gl_choice_set* set) {
  const struct gl_auto* const asked = request->asked;
  const int exact = candidate_by(set, row->strategy);
  int candidate = -1;
  bool kept = true;
  if (asked != NULL) {
    kept = row->bound == GL_BOUND_EXACT || (row->bound == asked->bound && row->bits >= asked->bits);
    if (kept) candidate = planned_candidate(tables, request, finder, row, set);
  }
  if (candidate < 0) candidate = exact;
  if (candidate < 0) return (struct gl_planned){.candidate = 0, .why = GL_REASON_NO_PLAN};
  return (struct gl_planned){.candidate = (uint8_t)candidate, .why = kept ? GL_REASON_PLAN : GL_REASON_ROUNDS};
}

int gl_fill_candidates(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                       const struct gl_codec_finder* finder, struct gl_choice_set* set) {
  add_strategies(tables, request, set);
  if (set->count == 0) return GL_FOUND;
  for (uint32_t i = 0; request->asked != NULL && i < tables->way_count; ++i) {
    const int code = add_row(tables, request, finder, (int)i, set);
    if (code != GL_FOUND) return code;
  }
  for (uint32_t i = 0; i < tables->plan_count; ++i) {
    set->plan[i] = plan_for(tables, request, finder, &tables->plan[i], set);
  }
  return GL_FOUND;
}
