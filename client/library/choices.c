// choices.c - strategy and codec of operations that leave them to the library (the thread of the context)
//
// The library chooses when an operation has its turn on the way to the daemon, in an order that is the same on all
// ranks. The choice depends on how many operations of the class there were, and on numbers that all ranks have agreed
// on. They agree by all-reduces that the library puts in front of operations, at the same places on all ranks. So only
// the operation that has its turn waits; the caller does not. A request here waits only for requests that all ranks
// have submitted before it. So no rank waits forever.
#include "client/library/choices.h"

#include <stdlib.h>
#include <string.h>

#include "client/library/loss.h"
#include "client/library/report.h"
#include "client/library/requests.h"
#include "client/tuner/agreement.h"

enum {
  kDigests = 2,  // one digest of what may be chosen, one of the plan
  kFirstPlace = GL_PREDICTIONS,
};

unsigned gl_size_class(double bytes) {
  unsigned size = 0;
  while (size + 1 < GL_SIZES && bytes >= (double)(UINT64_C(2) << (GL_LEAST_SIZE + size))) ++size;
  return size;
}

// ---- What all ranks agree on

// Digests have 53 bits, which a double holds.
static double digest_of_candidates(const gradlane_context* gl) {
  // Raise this number with any change of how choices follow from the agreed numbers. Ranks with other rules would count
  // differently.
  const uint8_t rules = 2;
  uint64_t digest = gl_digest(GL_DIGEST, &rules, sizeof(rules));
  digest = gl_digest(digest, gl->welcome.codec, strnlen(gl->welcome.codec, GL_NAME));
  for (uint32_t i = 0; i < gl->choices.row_count; ++i) {
    const struct gl_way_row* const row = &gl->choices.rows[i];
    digest = gl_digest(digest, &row->strategy, sizeof(row->strategy));
    const uint8_t what[] = {row->codec, row->bound, row->bits, row->scales};
    digest = gl_digest(digest, what, sizeof(what));
    digest = gl_digest(digest, row->name, strlen(row->name) + 1);
  }
  for (uint32_t i = 0; i < gl->strategies.count; ++i) {
    digest = gl_digest(digest, &gl->strategies.rows[i].code, sizeof(uint32_t));
  }
  return (double)(digest >> 11);
}

static double digest_of_plan(const gradlane_context* gl) {
  const size_t bytes = gl->choices.plan_count * sizeof(struct gl_plan_row);
  return (double)(gl_digest(GL_DIGEST, gl->choices.plan, bytes) >> 11);
}

// Puts an all-reduce of `count` doubles of the memory, from index `from` on, in front of the first request. `what` says
// what it is about, and is below 256. Returns NULL if there is no memory.
static struct gl_request* insert_agreement(gradlane_context* gl, size_t from, size_t count, uint32_t flag,
                                           uint64_t what) {
  struct gl_choices* const choices = &gl->choices;
  struct gl_request* const cause = gl->first;
  const uint64_t bytes = count * sizeof(double);
  const struct gl_operation operation = {.submission = {.tag = gl_agreement_tag(choices->agreements++ << 8 | what),
                                                        .count = count,
                                                        .offset = choices->offset + from * sizeof(double),
                                                        .timeout_ms = cause->operation.submission.timeout_ms,
                                                        .segment = (uint8_t)choices->segment,
                                                        .kind = GL_ALL_REDUCE,
                                                        .type = GRADLANE_FLOAT64,
                                                        .flags = flag},
                                         .data = {.base = (uint8_t*)(choices->memory + from), .bytes = bytes},
                                         .each = count,
                                         .parts = 1,
                                         .whole = count,
                                         .width = sizeof(double)};
  struct gl_request* const it = gl_new_request(gl, &operation);
  if (it == NULL) return NULL;
  it->internal = it->is_resolved = true;
  it->epoch = cause->epoch;
  // The agreement belongs to the same generation as the operation that it is for.
  memcpy(it->ends_seen, cause->ends_seen, sizeof(it->ends_seen));
  it->next = cause;
  gl->first = it;
  return it;
}

static void turn_off(gradlane_context* gl, uint8_t why) {
  gl->choices.state = GL_CHOICES_OFF;
  gl->choices.why = why;
}

// Returns whether ranks have different numbers. pair[0] is the maximum of the number over all ranks, and pair[1] the
// maximum of its negative.
static bool differ(const double* pair) { return pair[0] != -pair[1]; }

static void ask_ranks(gradlane_context* gl) {
  struct gl_choices* const choices = &gl->choices;
  const double digests[kDigests] = {digest_of_candidates(gl), digest_of_plan(gl)};
  double* at = choices->memory;
  for (unsigned i = 0; i < kDigests; ++i) {
    *at++ = digests[i];
    *at++ = -digests[i];
  }
  for (unsigned row = 0; row < GL_MAX_WAYS; ++row) {
    for (unsigned size = 0; size < GL_SIZES; ++size) *at++ = choices->rows[row].ns[size];
  }
  choices->agreement = insert_agreement(gl, 0, GL_PREDICTIONS, GL_FLAG_MAX, 0);
  choices->state = GL_CHOICES_ASKED;
  if (choices->agreement == NULL) turn_off(gl, GL_REASON_FAILED);
}

// Fails the operation that the choice was for, as ranks have not agreed, or some do not know that they have. It fails
// on all ranks, so that all learn of it and start again.
static void give_up(struct gl_request* request, const struct gl_request* agreement) {
  if (request->cancelled) return;
  request->cancelled = true;
  if (request->code != GRADLANE_OK) return;
  request->code = GRADLANE_FAILED;
  memcpy(request->text, agreement->text, sizeof(request->text));
  request->cause = agreement->cause;
}

static void take_agreement(gradlane_context* gl) {
  struct gl_choices* const choices = &gl->choices;
  const gradlane_code code = choices->agreement->code;
  if (code != GRADLANE_OK) give_up(gl->first, choices->agreement);
  const double* const all = choices->memory;
  gl_release_request(gl, choices->agreement);
  choices->agreement = NULL;
  if (code != GRADLANE_OK) {
    turn_off(gl, GL_REASON_FAILED);
    return;
  }
  const bool candidates = differ(all);
  const bool plans = differ(all + 2);
  if (candidates || plans) {
    gl_warn(
        gl, GL_REASON_DIFFER,
        "codec or strategy auto: the daemons of some ranks have different %s, so all operations use raw and the first "
        "strategy; make these equal on all nodes: %s",
        candidates ? "codecs or strategies" : "plans",
        candidates ? "codec, strategies, mtu and calibration in the configuration, and the version" : "plan");
    turn_off(gl, GL_REASON_DIFFER);
    return;
  }
  memcpy(choices->predicted, all + (size_t)2 * kDigests, sizeof(choices->predicted));
  choices->state = GL_CHOICES_AGREED;
}

// ---- Classes

static void freeze(struct gl_choice_class* it, unsigned candidate, uint8_t why) {
  it->why = why;
  it->tuner.frozen = true;
  it->tuner.chosen = candidate;
  it->tuner.state = GL_TUNER_SETTLED;
  it->tuner.left = UINT64_MAX;
}

// Returns the first row of the plan whose range has this size in it; -1: none.
static int plan_row_of(const gradlane_context* gl, double bytes) {
  for (uint32_t i = 0; i < gl->choices.plan_count; ++i) {
    const struct gl_plan_row* const row = &gl->choices.plan[i];
    if (bytes >= (double)row->from && bytes < (double)row->to) return (int)i;
  }
  return -1;
}

static void follow_plan(struct gl_choice_class* it) {
  static const struct gl_planned kNone = {.candidate = 0, .why = GL_REASON_NO_PLAN};
  const struct gl_planned planned = it->planned >= 0 ? it->set->plan[it->planned] : kNone;
  freeze(it, planned.candidate, planned.why);
}

static struct gl_choice_class* new_choice_class(gradlane_context* gl, const struct gl_operation* operation,
                                                unsigned size, int planned) {
  struct gl_choices* const choices = &gl->choices;
  if (choices->class_count == GL_MAX_CLASSES) return NULL;
  struct gl_choice_class* const it = calloc(1, sizeof(*it));
  if (it == NULL) return NULL;
  const struct gl_choice_set* const set = operation->choice;
  it->set = set;
  it->size = size;
  it->planned = planned;
  it->type = operation->submission.type;
  it->number = choices->class_count;
  it->report = gl_report_of(gl, it->number);
  choices->classes[choices->class_count++] = it;
  it->tuner.count = set->count;
  for (unsigned i = 0; i < set->count; ++i) {
    const struct gl_candidate* const candidate = &set->candidates[i];
    it->tuner.candidates[i] = (struct gl_timed_candidate){
        .strategy = candidate->strategy, .codec = candidate->codec, .exact = candidate->exact};
  }
  gl_tuner_begin(&it->tuner);
  return it;
}

static double bytes_of(const gradlane_context* gl, const struct gl_operation* operation) {
  const double whole = (double)operation->whole * operation->width;
  return operation->blocks ? whole * gl->welcome.world : whole;
}

// Returns the class of an operation, which it makes if needed; NULL if there are too many, or no memory.
static struct gl_choice_class* class_of(gradlane_context* gl, const struct gl_operation* operation) {
  const double bytes = bytes_of(gl, operation);
  const unsigned size = gl_size_class(bytes);
  const int planned = plan_row_of(gl, bytes);
  for (unsigned i = 0; i < gl->choices.class_count; ++i) {
    struct gl_choice_class* const it = gl->choices.classes[i];
    const bool same = it->set == operation->choice && it->size == size && it->planned == planned;
    if (same && it->type == operation->submission.type) return it;
  }
  return new_choice_class(gl, operation, size, planned);
}

// Sets the predictions of a class from the numbers that ranks agreed on. Returns false if they have not agreed yet.
static bool predict(gradlane_context* gl, struct gl_choice_class* it) {
  struct gl_choices* const choices = &gl->choices;
  if (choices->state == GL_CHOICES_ASKED) {
    if (choices->agreement->state != GL_OVER) return false;
    take_agreement(gl);
  }
  if (choices->state == GL_CHOICES_OFF) {
    freeze(it, 0, choices->why);
    return true;
  }
  for (unsigned i = 0; i < it->tuner.count; ++i) {
    const int row = it->set->candidates[i].row;
    it->tuner.candidates[i].predicted = row >= 0 ? choices->predicted[row][it->size] : GL_TRIAL_UNKNOWN / 2;
  }
  if (choices->plan_count > 0) {
    follow_plan(it);
  } else {
    gl_tuner_predict(&it->tuner);
  }
  return true;
}

// Returns whether the greatest of the ranks' times counts. In a reduce, other ranks than the root finish as soon as
// they have sent, so only the root knows how long it takes.
static bool by_greatest(const struct gl_choice_class* it) { return it->set->kind == GL_REDUCE; }

// Lets ranks agree on the times of trials. Each rank takes part when its own trials have ended. Returns false while the
// agreement is under way.
static bool agree_on_trials(gradlane_context* gl, struct gl_choice_class* it) {
  double* const times = gl->choices.memory + kFirstPlace + (size_t)it->number * GL_TRIALS;
  if (it->agreement == NULL) {
    gl_tuner_give(&it->tuner, by_greatest(it), times);
    const uint64_t what = (uint64_t)it->set->kind << 5 | (it->size + 1);
    const uint32_t flag = by_greatest(it) ? GL_FLAG_MAX : GL_FLAG_MIN;
    it->agreement = insert_agreement(gl, (size_t)(times - gl->choices.memory), GL_TRIALS, flag, what);
    if (it->agreement == NULL) freeze(it, 0, GL_REASON_FAILED);
    return true;
  }
  if (it->agreement->state != GL_OVER) return false;
  const gradlane_code code = it->agreement->code;
  if (code != GRADLANE_OK) give_up(gl->first, it->agreement);
  gl_release_request(gl, it->agreement);
  it->agreement = NULL;
  if (code != GRADLANE_OK) {
    freeze(it, 0, GL_REASON_FAILED);
  } else {
    gl_tuner_take(&it->tuner, times);
  }
  if (it->tuner.state == GL_TUNER_SETTLED) gl_report(it);
  return true;
}

// ---- Operations

// Finds the candidate of the operation, or puts an agreement in front of it. Returns false if the candidate is not
// known yet, as other operations are under way.
static bool take_turn(gradlane_context* gl, struct gl_choice_class* it, struct gl_request* request) {
  const uint64_t count = request->operation.submission.count;
  const uint64_t whole = request->operation.whole;
  if (gl->choices.plan_count > 0 && !it->tuner.frozen) {
    if (!predict(gl, it)) return false;
    gl_report(it);
  }
  enum gl_turn turn;
  while ((turn = gl_tuner_next(&it->tuner, count, whole, &request->turn)) != GL_TURN_GO) {
    if (turn == GL_TURN_PREDICT ? !predict(gl, it) : !agree_on_trials(gl, it)) return false;
    if (gl->first != request) return true;
    if (turn == GL_TURN_PREDICT) gl_report(it);
  }
  return true;
}

static void apply_candidate(const gradlane_context* gl, struct gl_request* request,
                            const struct gl_candidate* candidate) {
  struct gl_operation* const operation = &request->operation;
  struct gl_submission* const submission = &operation->submission;
  request->is_resolved = true;
  submission->strategy = candidate->strategy;
  if (!operation->choice->codes) return;
  submission->flags |= GL_FLAG_CODEC;
  submission->codec = candidate->codec;
  submission->codec_arguments = candidate->arguments;
  if (operation->states == 0) return;
  if (candidate->exact) {
    gl_add_residual(gl, operation);
  } else {
    submission->flags |= GL_FLAG_RESIDUAL;
  }
}

static bool is_running(const struct gl_request* it) { return it != NULL && it->state == GL_RUNNING; }

// Returns whether the operation must wait for others. A possible trial waits until nothing is in flight, except the
// agreement on predictions. Other operations wait while a trial with another tensor runs.
static bool must_wait(const gradlane_context* gl, const struct gl_choice_class* it) {
  if (gl_tuner_alone(&it->tuner)) return gl->flight_count > (is_running(gl->choices.agreement) ? 1 : 0);
  const bool same_tensor = it->tuner.state == GL_TUNER_TRYING && it->tuner.filled > 0;
  return gl->choices.open > 0 && !same_tensor;
}

bool gl_choose(gradlane_context* gl) {
  struct gl_request* const request = gl->first;
  const struct gl_operation* const operation = &request->operation;
  if (request->is_resolved) return true;
  if (operation->choice == NULL) return gl->choices.open == 0;
  const struct gl_choice_set* const set = operation->choice;
  // A request from before the count of operations began again fails in the daemon, so it needs no class.
  struct gl_choice_class* const it = request->epoch == gl->choices.epoch ? class_of(gl, operation) : NULL;
  if (it == NULL) {
    apply_candidate(gl, request, &set->candidates[0]);
    return true;
  }
  if (must_wait(gl, it)) return false;
  if (gl->choices.state == GL_CHOICES_NEW) {
    ask_ranks(gl);
    if (gl->first != request) return true;
  }
  if (!take_turn(gl, it, request)) return false;
  if (gl->first != request) return true;
  request->of_class = it;
  if (request->turn.trial >= 0) ++gl->choices.open;
  it->bytes += operation->submission.count * operation->width * (operation->blocks ? gl->welcome.world : 1);
  apply_candidate(gl, request, &set->candidates[request->turn.candidate]);
  gl_count_report(it);
  return true;
}

struct gl_request* gl_agreement(gradlane_context* gl) {
  const struct gl_choices* const choices = &gl->choices;
  if (is_running(choices->agreement)) return choices->agreement;
  for (unsigned i = 0; i < choices->class_count; ++i) {
    if (is_running(choices->classes[i]->agreement)) return choices->classes[i]->agreement;
  }
  return NULL;
}

// Forgets an agreement. If it is under way, it still ends, and nobody reads its result. It may still write to the
// memory of the next agreement. This does no harm: an agreement on predictions compares the same numbers of all ranks,
// and the memory of a class is not read before six operations later.
static void drop_agreement(gradlane_context* gl, struct gl_request** agreement) {
  struct gl_request* const it = *agreement;
  *agreement = NULL;
  if (it == NULL) return;
  if (it->state == GL_OVER) {
    gl_release_request(gl, it);
  } else {
    it->orphan = true;
  }
}

void gl_reset_choices(gradlane_context* gl) {
  struct gl_choices* const choices = &gl->choices;
  ++choices->epoch;
  choices->agreements = 0;
  choices->state = GL_CHOICES_NEW;
  drop_agreement(gl, &choices->agreement);
  // Classes are dropped, because a rank that has just joined has none.
  for (unsigned i = 0; i < choices->class_count; ++i) {
    drop_agreement(gl, &choices->classes[i]->agreement);
    free(choices->classes[i]);
  }
  choices->class_count = 0;
  choices->open = 0;
  gl_drop_sets(gl);
  gl_forget_reports(gl);
}

void gl_free_choices(gradlane_context* gl) {
  for (unsigned i = 0; i < gl->choices.class_count; ++i) free(gl->choices.classes[i]);
  while (gl->choices.sets != NULL) {
    struct gl_choice_set* const it = gl->choices.sets;
    gl->choices.sets = it->next;
    free(it);
  }
}
